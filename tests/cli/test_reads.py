"""Reads in FASTQ: those that are classified as viral come out with their headers and qualities."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.inputs import TOY, check_accepted
from tests.conftest import Call
from virnucpro.tables import CONTIGS

Calling = Callable[..., Call]
CODONS = ["GCT", "ACC", "GGA", "TTC", "CAT", "AAG", "CTG", "GAT"]
RECORDS = 60
CUT = ("--min-score", "-1", "--min-length")


def _reads() -> dict[str, str]:
    """FASTQ records by their ids."""
    source = random.Random(3)
    reads = {}
    for n in range(RECORDS):
        bases = "".join(source.choices(CODONS, k=20 + n))
        qualities = "".join(chr(source.randrange(33, 74)) for _ in bases)
        reads[f"r{n}"] = f"@r{n} 1:N:0:{n}\n{bases}\n+\n{qualities}\n"
    return reads


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sample.fq.gz"
    path.write_bytes(gzip.compress("".join(_reads().values()).encode()))
    return path


def _called(out: Path) -> list[str]:
    rows = CONTIGS.read(out / "sample_contigs.tsv", "record", "call")
    return [record for record, called in rows if called == "virus"]


def _expected(out: Path) -> str:
    reads = _reads()
    return "".join(reads[name] for name in _called(out))


def test_reads_come_out_as_they_came_in(call: Calling, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ("predict", source, "-o", out, *TOY)
    check_accepted(call(*arguments, *CUT, "90"))
    found = out / "sample_virus.fastq.gz"
    assert 0 < len(_called(out)) < RECORDS
    assert gzip.decompress(found.read_bytes()).decode() == _expected(out)
    first = found.read_bytes()
    assert first[3:8] == bytes(5)  # neither a name nor a time (RFC 1952, 2.3)
    assert call("call", out, *CUT, "150").code == 0
    assert gzip.decompress(found.read_bytes()).decode() == _expected(out)
    assert found.read_bytes() != first
    found.unlink()
    check_accepted(call(*arguments, *CUT, "90"))
    assert found.read_bytes() == first
