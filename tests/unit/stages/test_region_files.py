"""Regions in a table, in BED and in GFF3, read back by programs of others."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import unquote

import pytest
from BCBio import GFF
from Bio import Align

from tests.declared import add_record, call_record
from virnucpro.io.records import Record
from virnucpro.settings import DEFAULT_THRESHOLDS
from virnucpro.stages.regions import Region
from virnucpro.stages.result_files import ResultFiles
from virnucpro.store.disk import Disk
from virnucpro.tables import REGIONS

HOSTILE = [
    *("<script>alert(1)</script>", "=;,%&", "%3B", "L" * 5000, "Кириллица", "#comment", ">header"),
    *("track", "`$(x)'\"", "a|b:1-2"),
]
REGION = Region(99, 5099, 11, 9, 0.987654, -0.25, False, fdr=0.01)
EDGE = Region(6000, 12000, 13, 13, 0.4, None, True, fdr=0.08)
SCORES = (-1.0, 0.0, 1.0)
SEQUENCE = "".join(random.Random(0).choices("ACGT", k=12_000))
KINDS = ("regions", "bed", "gff3")


@pytest.fixture
def written(tmp_path: Path) -> dict[str, Path]:
    """The files of the regions of all names, and of some scores."""
    paths = {name: tmp_path / name for name in ("chunks", "contigs", "virus", "fasta", *KINDS)}
    with ExitStack() as stack:
        writers = {name: stack.enter_context(Disk().create(p)) for name, p in paths.items()}
        files = ResultFiles(writers)
        for name in HOSTILE:
            record = Record(name, name, SEQUENCE)
            add_record(files, record, name, call_record(12000, []), [REGION, EDGE])
        for score in SCORES:
            region = REGION._replace(score=score)
            add_record(files, record, "a", call_record(12000, []), [region])
        files.finish(DEFAULT_THRESHOLDS, None, calibrated=True)
    return paths


def test_the_table_counts_from_one_and_includes_the_last_base(written):
    rows = list(REGIONS.read(written["regions"], *REGIONS.row._fields))
    assert [row[1] for row in rows[: 2 * len(HOSTILE) : 2]] == HOSTILE
    assert rows[0][2:10] == ["100", "5099", "5000", "11", "9", "0.987654", "-0.250000", "False"]
    assert rows[1][2:10] == ["6001", "12000", "6000", "13", "13", "0.400000", "NA", "True"]
    assert {row[10] for row in rows} <= {"phage", "eukaryotic virus", "unsure"}
    assert [row[11] for row in rows[:2]] == ["high", "medium"]
    assert 0 < float(rows[0][12]) < float(rows[1][12]) < 0.1
    assert rows[2][0] == "=;,%&|region_100_5099"


def test_biopython_reads_the_bed_file(written):
    with written["bed"].open(encoding="utf-8") as stream:
        features = list(Align.parse(stream, "bed"))
    named = features[: 2 * len(HOSTILE) : 2]
    names = [feature.target.id for feature in named]
    assert names == [name.replace("#comment", "%23comment") for name in HOSTILE]
    assert [feature.query.id for feature in named] == [f"{n}|region_100_5099" for n in HOSTILE]
    tiers = {"high": 1000, "medium": 600, "low": 300}
    rows = REGIONS.read(written["regions"], "tier")
    assert [feature.score for feature in features] == [tiers[tier] for (tier,) in rows]
    assert {feature.score for feature in features} == {1000, 600}
    first, second = features[:2]
    assert first.coordinates[0].tolist() == [99, 5099]
    assert second.coordinates[0].tolist() == [6000, 12000]


def test_bcbio_gff_reads_the_gff3_file(written):
    with written["gff3"].open(encoding="utf-8") as stream:
        records = {unquote(record.id): record for record in GFF.parse(stream)}
    assert sorted(records) == sorted(["a", *HOSTILE])
    for name in HOSTILE:
        first, second = records[name].features
        assert first.id == f"{name}|region_100_5099"
        assert first.type == "viral_sequence"
        assert (int(first.location.start), int(first.location.end)) == (99, 5099)
        assert first.qualifiers["flank_score"] == ["-0.250000"]
        assert first.qualifiers["score"] == ["0.987654"]
        assert (first.qualifiers["chunks"], first.qualifiers["chunks_scored"]) == (["11"], ["9"])
        assert (first.qualifiers["at_edge"], second.qualifiers["at_edge"]) == (["false"], ["true"])
        assert (first.qualifiers["tier"], second.qualifiers["tier"]) == (["high"], ["medium"])
        assert {"virus_kind", "fdr"} <= first.qualifiers.keys()
        assert "flank_score" not in second.qualifiers
