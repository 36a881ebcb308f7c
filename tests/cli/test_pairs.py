"""Reads and pairs of them: those that are classified as viral come out as they came in."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

import virnucpro
from tests.cli.inputs import (
    CODONS,
    TOY,
    check_accepted,
    interrupted_at,
    poisoned,
    table,
    toy_request,
)
from tests.faults.survival import results
from virnucpro.cli import run
from virnucpro.io.frames import open_frames
from virnucpro.results import open_run
from virnucpro.run.predict import run_prediction
from virnucpro.stages import output
from virnucpro.stages.regions import Region

PAIRS_IN_ALL = 40
LENGTH = 66  # bases per chunk: a mate of 78 bases has two chunks, one of 60 has one
PREDICT = (*TOY, "-e", LENGTH)
CUT = ("--min-score", "-0.1")


def _mates(number: int) -> list[str]:
    """The FASTQ records of the first or the second mates, without T so that frames are open."""
    source = random.Random(number)
    reads = []
    for n in range(PAIRS_IN_ALL):
        bases = "".join(source.choices(CODONS, k=20 if n % 2 else 26))
        qualities = "".join(chr(source.randrange(33, 74)) for _ in bases)
        reads.append(f"@p{n}/{number} {number}:N:0\n{bases}\n+\n{qualities}\n")
    return reads


def _write_pair(folder: Path) -> tuple[Path, Path]:
    """Two files of mates, of which the second is compressed."""
    first, second = folder / "s_R1.fq", folder / "s_R2.fq.gz"
    first.write_text("".join(_mates(1)))
    second.write_bytes(gzip.compress("".join(_mates(2)).encode(), mtime=0))
    return first, second


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return _write_pair(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output directory of a finished run. Not to be changed."""
    folder = tmp_path_factory.mktemp("pairs")
    first, second = _write_pair(folder)
    command = ("predict", first, "--input2", second, "-o", folder / "out", *PREDICT, *CUT)
    assert run([str(word) for word in command]) == 0
    return folder / "out"


def _rows(path: Path, *names: str) -> list[list[str]]:
    return [[row[name] for name in names] for row in table(path)]


def _text(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def test_a_pair_has_one_call_from_the_chunks_of_both_mates(finished):
    rows = _rows(finished / "s_R1_contigs.tsv", "record", "length", "chunks", "regions")
    assert rows[:2] == [["p0", "156", "4", "0"], ["p1", "120", "2", "0"]]
    assert len(rows) == PAIRS_IN_ALL
    chunks = _rows(finished / "s_R1_chunks.tsv", "chunk", "start", "end")
    places = [("1", "66"), ("39", "78"), ("79", "144"), ("117", "156")]
    assert chunks[:4] == [[f"p0_chunk_{n}", *place] for n, place in enumerate(places, 1)]
    record = json.loads((finished / "s_R1_run.json").read_text())
    assert record["counts"]["records"] == PAIRS_IN_ALL
    assert record["input"]["mates"]["path"].endswith("s_R2.fq.gz")
    report = (finished / "s_R1_report.html").read_text()
    assert f"s_R1.fq and s_R2.fq.gz: {PAIRS_IN_ALL} pairs" in report
    assert 'href="./s_R1_virus_2.fastq.gz"' in report


def test_both_mates_come_out_also_where_only_the_second_is_viral(finished):
    calls = _rows(finished / "s_R1_contigs.tsv", "call")
    viral = [n for n, row in enumerate(calls) if row == ["virus"]]
    scores: dict[str, list[float]] = {}
    names = ("record", "max_score_0", "max_score_1")
    for record, others, virus in _rows(finished / "s_R1_chunks.tsv", *names):
        scores.setdefault(record, []).append(float(virus) - float(others))
    assert [n for n in viral if n % 2 and scores[f"p{n}"][0] < 0 < scores[f"p{n}"][1]]
    assert len(viral) < PAIRS_IN_ALL
    for number in (1, 2):
        reads = _text(finished / f"s_R1_virus_{number}.fastq.gz")
        assert reads == "".join(_mates(number)[n] for n in viral)
    fasta = (finished / "s_R1_virus.fna").read_text()
    headers = [line for line in fasta.splitlines() if line.startswith(">")]
    assert headers == [f">p{n}/{mate} {mate}:N:0" for n in viral for mate in (1, 2)]
    assert not (finished / "s_R1_virus.fastq.gz").exists()


def test_single_reads_come_out_with_their_headers_and_qualities(call, pair, tmp_path):
    arguments = ("predict", pair[0], "-o", tmp_path / "out", *PREDICT)
    found, long = tmp_path / "out/s_R1_virus.fastq.gz", ("--min-score", "-1", "--min-length", "78")
    check_accepted(call(*arguments, *long))
    assert _text(found) == "".join(_mates(1)[::2])
    first = found.read_bytes()
    assert first[3:8] == bytes(5)  # neither a name nor a time (RFC 1952, 2.3)
    assert call("call", tmp_path / "out", "--min-score", "-1").code == 0
    assert _text(found) == "".join(_mates(1))
    found.unlink()
    check_accepted(call(*arguments, *long))
    assert found.read_bytes() == first


def test_no_region_is_looked_for_in_a_pair(call, pair, tmp_path, monkeypatch):
    """Its mates are two pieces: what lies between them is not known."""
    found = [Region(0, 60, 4, 4, 0.9, None, at_edge=True)]
    monkeypatch.setattr(output, "SHORTEST_RECORD", 0)
    monkeypatch.setattr(output, "find_regions", lambda *_: found)
    for name, more in (("single", ()), ("both", ("--input2", pair[1]))):
        check_accepted(call("predict", pair[0], *more, "-o", tmp_path / name, *PREDICT))
    assert list(open_run(tmp_path / "single").regions())
    assert list(open_run(tmp_path / "both").regions()) == []
    assert not list((tmp_path / "both").glob("*_regions.*"))


def test_failed_pairs_are_an_input_of_their_own(tmp_path):
    files = tmp_path / "s_R1.fq", tmp_path / "s_R2.fq"
    for number, path in enumerate(files, 1):  # both mates have the same id
        path.write_text("".join(_mates(number)).replace(f"/{number} ", " "))
    pairs = toy_request(files[0], tmp_path / "out", files[1], chunk_length=LENGTH)
    bases = _mates(1)[3].split("\n")[1]
    with poisoned(open_frames([bases[:LENGTH]]).proteins[0].__eq__):
        assert run_prediction(pairs, lambda _: None).failed_records == 1
    failed = pairs.layout.failed_fasta
    headers = [line for line in failed.read_text().splitlines() if line.startswith(">")]
    assert headers == [">p3/1 1:N:0", ">p3/2 2:N:0"]
    again = toy_request(failed, tmp_path / "again", chunk_length=LENGTH)
    assert run_prediction(again, lambda _: None).results.records == 2


def test_pairs_of_fasta_given_in_python_come_out_as_fasta(tmp_path):
    files = tmp_path / "a.fa", tmp_path / "b.fa"
    for number, path in enumerate(files, 1):
        path.write_text("".join(f">p{n}\n{'GCAGCC' * (9 + n + number)}\n" for n in range(2)))
    out, asked = tmp_path / "out", {"chunk_length": LENGTH, "min_score": -1.0}
    made = virnucpro.predict(files[0], out, input2=files[1], model="toy", device="cpu", **asked)
    assert [row.length for row in made.contigs()] == [126, 138]
    assert f"input2={str(files[1])!r}" in made.record["command"][0]
    for number, path in enumerate(files, 1):
        assert (out / f"a_virus_{number}.fna").read_text() == path.read_text()
    assert not list(out.glob("*.fastq.gz"))


def test_an_interrupted_run_goes_on_and_another_second_file_is_refused(
    call, pair, finished, tmp_path
):
    out = tmp_path / "out"
    command = ("predict", pair[0], "--input2", pair[1], *PREDICT, *CUT, "-o")
    for stage in ("translation", "protein_embeddings", "output"):
        with interrupted_at(stage):
            assert call(*command, out).code == 130
    content = pair[1].read_bytes()
    pair[1].write_bytes(gzip.compress("".join(_mates(3)).replace("/3 3", "/2 2").encode()))
    assert call(*command, out, "--resume").code == 3
    pair[1].unlink()
    assert call("predict", pair[0], *PREDICT, *CUT, "-o", out, "--resume").code == 3
    pair[1].write_bytes(content)
    check_accepted(call(*command, out))
    assert results(out) == results(finished)


def test_a_moved_second_file_is_named_for_other_thresholds(call, pair, finished, tmp_path):
    out = tmp_path / "out"
    check_accepted(call("predict", pair[0], "--input2", pair[1], "-o", out, *PREDICT))
    moved = pair[1].rename(tmp_path / "moved.fq.gz")
    assert call("call", out, *CUT).code == 65
    assert call("call", out, *CUT, "--input", pair[0], "--input2", moved).code == 0
    for name in ("s_R1_virus_2.fastq.gz", "s_R1_contigs.tsv"):
        assert (out / name).read_bytes() == (finished / name).read_bytes()


def test_an_interleaved_file_gives_what_two_files_give(call, finished, tmp_path):
    source, out = tmp_path / "s_R1.fq", tmp_path / "out"
    source.write_text("".join(map("".join, zip(_mates(1), _mates(2), strict=True))))
    command = ("predict", source, "-o", out, *PREDICT, *CUT)
    check_accepted(call(*command, "--interleaved"))
    for name in ("contigs.tsv", "chunks.tsv", "virus.fna", "virus_1.fastq.gz", "virus_2.fastq.gz"):
        theirs = (finished / f"s_R1_{name}").read_bytes()
        assert (out / f"s_R1_{name}").read_bytes() == theirs, name
    assert f"s_R1.fq: {PAIRS_IN_ALL} pairs" in (out / "s_R1_report.html").read_text()
    assert call("call", out, "--min-score", "-1").code == 0
    assert _text(out / "s_R1_virus_2.fastq.gz") == "".join(_mates(2))
    assert call(*command).code == 3
    assert f"{PAIRS_IN_ALL} pairs" in call("utils", "validate", source, "--interleaved").out


@pytest.mark.parametrize(
    "arguments",
    [
        "s_R1.fq --interleaved",
        "s_R1.fq --input2 s_R1.fq --interleaved",
        "s_R1.fq --input2 s_R1.fq",
        "s_R1.fq --input2 none.fq",
        "- --input2 s_R2.fq.gz",
        "s_R1.fq s_R1.fq --input2 s_R2.fq.gz",
    ],
)
def test_what_is_no_pair_is_refused(call, pair, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    assert call("predict", *arguments.split(), "-o", "out", *PREDICT).code == 64
    assert not list(Path("out").glob("s_R1*"))


def test_pairs_in_a_list_of_samples(call, pair, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listed = "name\tfile\tinput2\nboth\ts_R1.fq\ts_R2.fq.gz\none\ts_R1.fq\t\nshort\ts_R1.fq\n"
    Path("samples.tsv").write_text(listed)
    assert call("predict", "--input-list", "samples.tsv", "-o", "out", *PREDICT).code == 0
    for name, length in (("both", "156"), ("one", "78"), ("short", "78")):
        assert table(Path(f"out/{name}/s_R1_contigs.tsv"))[0]["length"] == length
