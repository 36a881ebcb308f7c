"""Viral regions as the rows of a table, of a BED file and of a GFF3 file."""

from __future__ import annotations

from collections.abc import Sequence

from virnucpro.columns import gff3_escaped
from virnucpro.stages.regions import Region
from virnucpro.tables import REGIONS

# SO:0001041, the sequence of a virus: a region may be a provirus, or a viral part of a chimera.
SEQUENCE_ONTOLOGY_TYPE = "viral_sequence"


def region_id(record: str, region: Region) -> str:
    """Return the id of a region, which is its name in all files."""
    return f"{record}|region_{region.start + 1}_{region.stop}"


def table_row(record: str, region: Region) -> str:
    """Return the line of ``STEM_regions.tsv``."""
    return REGIONS.line(
        region=region_id(record, region),
        record=record,
        start=region.start + 1,
        end=region.stop,
        length=region.stop - region.start,
        chunks=region.chunks,
        chunks_scored=region.chunks_scored,
        score=region.score,
        flank_score=region.flank_score,
        at_edge=region.at_edge,
    )


def bed_row(record: str, region: Region) -> str:
    """Return the line of ``STEM_regions.bed``; the score is 1000 times the probability of virus.

    BED knows no escapes. Only a ``#`` at the beginning of the line would make it a comment.
    """
    score = min(1000, max(0, round(500 * (1 + region.score))))
    chromosome = record.replace("#", "%23", 1) if record.startswith("#") else record
    cells = (chromosome, region.start, region.stop, region_id(record, region), score, ".")
    return "\t".join(map(str, cells)) + "\n"


def gff3_rows(record: str, length: int, regions: Sequence[Region]) -> str:
    """Return the lines of ``STEM_regions.gff3`` for a record of ``length`` bases."""
    if not regions:
        return ""
    name = gff3_escaped(record)
    lines = [f"##sequence-region {name} 1 {length}"]
    for region in regions:
        attributes = {
            "ID": gff3_escaped(region_id(record, region)),
            "chunks": str(region.chunks),
            "chunks_scored": str(region.chunks_scored),
            "at_edge": "true" if region.at_edge else "false",
        }
        if region.flank_score is not None:
            attributes["flank_score"] = f"{region.flank_score:.6f}"
        place = f"{name}\tvirnucpro\t{SEQUENCE_ONTOLOGY_TYPE}\t{region.start + 1}\t{region.stop}"
        text = ";".join(f"{key}={value}" for key, value in attributes.items())
        lines.append(f"{place}\t{region.score:.6f}\t.\t.\t{text}")
    return "\n".join([*lines, ""])
