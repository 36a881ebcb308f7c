"""Regions in a table, in BED and in GFF3, read back by programs of others."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest
from BCBio import GFF
from Bio import Align

from virnucpro.columns import GFF3_HEADER
from virnucpro.stages.regions import Region
from virnucpro.stages.results import bed_row, gff3_rows, region_id, table_row
from virnucpro.tables import REGIONS

HOSTILE = [
    "<script>alert(1)</script>",
    "=;,%&",
    "%3B",
    "L" * 5000,
    "Кириллица",
    "#comment",
    ">header",
    "track",
    "`$(x)'\"",
    "a|b:1-2",
]
REGION = Region(99, 5099, 11, 9, 0.987654, -0.25, False)
EDGE = Region(6000, 12000, 13, 13, 0.4, None, True)


@pytest.fixture
def written(tmp_path: Path) -> dict[str, Path]:
    rows = [(name, region) for name in HOSTILE for region in (REGION, EDGE)]
    texts = {
        "tsv": REGIONS.header + "".join(table_row(*row) for row in rows),
        "bed": "".join(bed_row(*row) for row in rows),
        "gff3": GFF3_HEADER + "".join(gff3_rows(name, 12000, (REGION, EDGE)) for name in HOSTILE),
    }
    for name, text in texts.items():
        (tmp_path / f"r.{name}").write_text(text, encoding="utf-8")
    return {name: tmp_path / f"r.{name}" for name in texts}


def test_the_table_counts_from_one_and_includes_the_last_base(written: dict[str, Path]) -> None:
    rows = list(REGIONS.read(written["tsv"], *REGIONS.names))
    assert [row[1] for row in rows[::2]] == HOSTILE
    assert rows[0][2:] == ["100", "5099", "5000", "11", "9", "0.987654", "-0.250000", "False"]
    assert rows[1][2:] == ["6001", "12000", "6000", "13", "13", "0.400000", "NA", "True"]
    assert rows[2][0] == "=;,%&|region_100_5099" == region_id("=;,%&", REGION)


def test_biopython_reads_the_bed_file(written: dict[str, Path]) -> None:
    with written["bed"].open(encoding="utf-8") as stream:
        features = list(Align.parse(stream, "bed"))
    names = [feature.target.id for feature in features[::2]]
    assert names == [name.replace("#comment", "%23comment") for name in HOSTILE]
    assert [f.query.id for f in features[::2]] == [region_id(name, REGION) for name in HOSTILE]
    first, second = features[:2]
    assert (first.coordinates[0].tolist(), first.score) == ([99, 5099], 994)
    assert (second.coordinates[0].tolist(), second.score) == ([6000, 12000], 700)


def test_bcbio_gff_reads_the_gff3_file(written: dict[str, Path]) -> None:
    with written["gff3"].open(encoding="utf-8") as stream:
        records = {unquote(record.id): record for record in GFF.parse(stream)}
    assert sorted(records) == sorted(HOSTILE)
    for name, record in records.items():
        first, second = record.features
        assert first.id == region_id(name, REGION)
        assert first.type == "viral_sequence"
        assert (int(first.location.start), int(first.location.end)) == (99, 5099)
        assert first.qualifiers["flank_score"] == ["-0.250000"]
        assert first.qualifiers["score"] == ["0.987654"]
        assert (first.qualifiers["at_edge"], second.qualifiers["at_edge"]) == (["false"], ["true"])
        assert "flank_score" not in second.qualifiers


def test_the_score_of_a_bed_file_stays_between_0_and_1000() -> None:
    rows = [bed_row("a", REGION._replace(score=score)) for score in (-1.0, 0.0, 1.0)]
    assert [row.split("\t")[4] for row in rows] == ["0", "500", "1000"]
