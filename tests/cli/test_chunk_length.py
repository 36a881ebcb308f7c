"""The chunk length of lite: that of the records, unless it is asked for or the run has begun."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.inputs import bases, interrupted_at, toy_request
from tests.forked import run_forked
from virnucpro.io.inputs import InputFiles
from virnucpro.results import open_run
from virnucpro.run.prepare import settled

LITE = ("-m", "lite", "--device", "cpu", "--threads", "1")


def fasta(lengths: Sequence[int]) -> str:
    return "".join(f">r{n}\n{bases(each, n).decode()}\n" for n, each in enumerate(lengths))


def chunk_length(out: Path, stem: str) -> int:
    record = json.loads((out / f"{stem}_run.json").read_bytes())
    length: int = record["settings"]["analysis"]["chunk_length"]
    assert len((out / f"{stem}_chunks.tsv").read_text().splitlines()) > 1
    return length


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([151] * 4, 151),  # which sequencers give: one chunk per read
        ([150, 149, 148, 151], 151),
        ([301] * 3, 301),
        ([152] * 4, 150),
        ([250] * 3, 150),
        ([251] * 3, 300),
        ([330] * 3, 300),
        ([331] * 3, 500),
        ([60] * 3, 150),
        ([0, 0, 150], 150),
        ([3000], 500),
        ([150] * 9 + [2000], 500),  # an assembly: most of its bases are in one contig
        ([150] * 9 + [1200], 150),
        ([], 150),  # of which nothing is said
    ],
)
def test_the_records_decide(tmp_path, lengths, expected):
    source = tmp_path / "s.fa"
    source.write_text(fasta(lengths))
    request = toy_request(source, tmp_path, model_type="lite")
    said = []
    found = settled(request, InputFiles(source), said.append)
    assert (found.layout.chunk_length, len(said)) == (expected, bool(lengths))


def test_a_read_of_151_bases_is_one_chunk_and_has_the_score_of_its_kind(call, tmp_path):
    (tmp_path / "s.fa").write_text(fasta([151] * 4))
    found = []
    for options in ((), ("-e", "151"), ("-e", "150")):
        out = tmp_path / "-".join(options)
        assert call("predict", tmp_path / "s.fa", "-o", out, *LITE, *options).code == 0
        found.append(list(open_run(out).contigs()))
    assert [(row.chunks, row.coverage) for row in found[0]] == [(1, 1.0)] * 4
    assert all(row.fdr is not None for row in found[0])  # by the figures of chunks of 150 bases
    assert found[0] == found[1]
    assert [row.chunks for row in found[2]] == [2] * 4


def test_standard_input_pairs_and_each_of_several_samples(call, tmp_path):
    out = tmp_path / "piped"
    assert run_forked("predict", "-", "-o", out, *LITE, input=fasta([300] * 3)).code == 0
    assert chunk_length(out, "stdin") == 300
    for name, lengths in (("a", [150] * 3), ("b", [1500] * 3), ("c", [151, 150, 149])):
        (tmp_path / f"{name}.fa").write_text(fasta(lengths))
    files = [tmp_path / f"{name}.fa" for name in "abc"]
    assert call("predict", *files[:2], "-o", tmp_path / "samples", *LITE).code == 0
    assert [chunk_length(tmp_path / "samples" / name, name) for name in "ab"] == [150, 500]
    pair = ("predict", files[0], "--input2", files[2], "-o", tmp_path / "pairs", *LITE)
    assert call(*pair).code == 0
    assert chunk_length(tmp_path / "pairs", "a") == 151


@pytest.mark.parametrize("stage", ["merging", "output", ""])
def test_a_run_that_was_begun_at_500_goes_on_so(tmp_path, call, stage):
    """Versions that took 500 for reads, too, recorded the same as with ``-e 500``."""
    (tmp_path / "s.fa").write_text(fasta([150] * 4))

    def predict(name: str, *options: str) -> int:
        return call("predict", tmp_path / "s.fa", "-o", tmp_path / name, *LITE, *options).code

    with interrupted_at(stage):
        assert predict("out", "-e", "500") == (130 if stage else 0)
    assert [predict("out", *words) for words in (("-e", "150"), ("--resume",))] == [3, 0]
    assert predict("whole", "-e", "500") == 0
    for name in ("s_contigs.tsv", "s_chunks.tsv", "s_virus.tsv", "s_merged/prediction_results.txt"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert chunk_length(tmp_path / "out", "s") == 500
    assert predict("out", "--force") == 0
    assert chunk_length(tmp_path / "out", "s") == 150
