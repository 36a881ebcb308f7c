"""Two files with the mates of pairs, read in step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from virnucpro.errors import UsageError
from virnucpro.io.frames import chunk_spans, spans_of_records
from virnucpro.io.inputs import InputFiles, InputSummary, pair_id, summarise_input, with_unique_ids
from virnucpro.io.records import Record
from virnucpro.stages.chunking import duplicate_ids_error


def _fastq(*ids: str, bases: str = "ACGT") -> str:
    return "".join(f"@{id} of a sample\n{bases}\n+\n{'I' * len(bases)}\n" for id in ids)


def _files(folder: Path, first: str, second: str) -> InputFiles:
    files = InputFiles(folder / "a.fq", folder / "b.fq")
    for path, text in zip(files.paths, (first, second), strict=True):
        path.write_text(text)
    return files


@pytest.mark.parametrize(
    ("first", "second"), [("r1/1", "r1/2"), ("r1", "r1"), ("r1/1", "r1"), ("r1/2", "r1/1")]
)
def test_mates_share_an_id_without_their_numbers(tmp_path, first, second):
    files = _files(tmp_path, _fastq(first), _fastq(second, bases="GG"))
    (pair,) = files.records()
    assert pair == Record(
        *("r1", f"{first} of a sample", "ACGT", "IIII"),
        mate=Record("r1", f"{second} of a sample", "GG", "II"),
    )
    assert pair.sequences == ("ACGT", "GG")


def test_only_the_numbers_of_mates_are_taken_off():
    ids = ("r/3", "/1", "r.1", "r/1/2")
    assert [pair_id(id, id) for id in ids] == ["r/3", "/1", "r.1", "r/1"]
    assert pair_id("run.7.1", "run.7.2") == "run.7"
    assert pair_id("run.7.2", "run.7.1") is None
    assert pair_id("run.1", "run.2") == "run"
    assert pair_id("run.7.1", "run.8.2") is None
    assert pair_id(".1", ".2") is None


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (_fastq("r1/1", "r2/1"), _fastq("r1/2", "r3/2"), "pair 2"),
        (_fastq("r1"), _fastq("r1", "r2"), "'r2', read 2, has no mate"),
        (_fastq("r1", "r2"), _fastq("r1"), "'r2', read 2, has no mate"),
        (_fastq("r1"), ">r1\nACGT\n", "not of one format"),
        *(
            (reads, reads, "first mates are there again")
            for reads in (_fastq("r"), _fastq("r", "s"))
        ),
    ],
)
def test_what_is_no_pair(tmp_path, first, second, says):
    with pytest.raises(UsageError, match=says):
        list(_files(tmp_path, first, second).records())


def test_the_summary_counts_pairs_and_the_bases_of_both_mates(tmp_path):
    files = _files(tmp_path, _fastq("r1/1", "r2/1"), _fastq("r1/2", "r2/2", bases="ACGTAC"))
    assert summarise_input(files) == InputSummary(2, 20, 6, 5, False, (), None)


def test_a_pair_that_occurs_twice_is_renamed(tmp_path):
    files = _files(tmp_path, _fastq("r1/1", "r1/1"), _fastq("r1/2", "r1/2", bases="GG"))
    summary = summarise_input(files)
    assert summary.duplicates == ("r1",)
    assert [pair.id for pair in with_unique_ids(files.records(), summary)] == ["r1", "r1_2"]
    assert "--interleaved" not in str(duplicate_ids_error(files, summary))
    assert "--interleaved" in str(duplicate_ids_error(InputFiles(files.first), summary))


@pytest.mark.parametrize("mates", [1, 2])
@pytest.mark.parametrize("chunk_length", [3, 7, 500])
def test_the_chunks_of_many_records_are_those_of_each_mate(mates, chunk_length):
    """No chunk spans both mates; the second one is counted on behind the first."""
    lengths = np.random.default_rng(mates).integers(0, 4 * chunk_length, (mates, 300))
    lengths[:, :2] = [[0, chunk_length]] * mates
    found = np.stack(spans_of_records(lengths, chunk_length), axis=1).tolist()
    assert found == [
        [record, before + start, before + stop]
        for record, own in enumerate(lengths.T.tolist())
        for before, length in zip((0, own[0]), own, strict=False)
        for start, stop in chunk_spans(length, chunk_length)
    ]
