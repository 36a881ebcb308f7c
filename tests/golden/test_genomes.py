"""Real genomes through all nine stages with the reference models: every record accounted for."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def _headers(source: Path) -> list[str]:
    with gzip.open(source, "rt") as stream:
        return [line[1:].split()[0] for line in stream if line.startswith(">")]


def _check(out: Path, stem: str, ids: list[str]) -> dict[str, int]:
    contigs = _table(out / f"{stem}_contigs.tsv")
    assert [row["record"] for row in contigs] == ids
    chunks = _table(out / f"{stem}_chunks.tsv")
    assert len(chunks) == sum(int(row["chunks"]) for row in contigs)
    for row in contigs:
        own = [c for c in chunks if c["record"] == row["record"]]
        assert int(own[0]["start"]) == 1
        assert int(own[-1]["end"]) == int(row["length"])
        assert sum(c["status"] == "scored" for c in own) == int(row["chunks_scored"])
    counts = json.loads((out / f"{stem}_run.json").read_text())["counts"]
    scored, unscored = counts["records_scored"], counts["records_unscored"]
    assert counts["records"] == len(ids) == scored + sum(unscored.values())
    return dict(counts["chunks"])


def test_phages(call: Callable, genomes: Path, options: list[str], tmp_path: Path) -> None:
    source = genomes / "viral/phages_refseq.fa.gz"
    done = call("predict", source, "-o", tmp_path / "out", *options, "--device", "cpu")
    assert done.code == 0, done.err
    chunks = _check(tmp_path / "out", "phages_refseq", _headers(source))
    # Phages are densely coding: four in ten of their 500 bp chunks have an open frame.
    assert 0.35 < chunks["scored"] / sum(chunks.values()) < 0.6
