"""The table of a report: viruses, regions, and some of the other records."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from virnucpro.formatting import counted
from virnucpro.report.content import Content
from virnucpro.stages.calls import LITTLE
from virnucpro.tables import RegionRow, VirusRow

MOST_ROWS = 5000
MOST_REGION_ROWS = 1000  # of these, where more viruses were found than there are rows
HEADS = {
    "id": "the first word of the header, or the id of a viral region",
    "kind": "what the record is classified as; a region is the viral part of a record",
    "length": "in bases",
    "score": "from -1 (not viral) to 1 (viral)",
    "fdr": "estimated share of errors among this record and all more certain ones; it is large "
    "beside a high score where many records that are not viral score as high, as short reads do",
    "tier": "high, medium or low: how certain the call is, by fdr where it is known, and by score",
    "chunks scored": "the pieces of the record that have a score",
    "share scored": "the part of the record with a score, from 0 to 1",
    "remark": "kind, terminal repeats, genes and hallmark genes of a virus, what weakens a call",
}
_Row = tuple[str, str, int, float | None, float | None, str | None, int, float, str]  # as HEADS


def table_rows(content: Content) -> list[_Row]:
    """Return the rows with the highest scores first."""
    return sorted(_rows(content), key=lambda row: -2 if row[3] is None else row[3], reverse=True)


def _rows(content: Content) -> Iterator[_Row]:
    """Yield at most ``MOST_ROWS`` rows: viruses, regions, and other records."""
    room = MOST_ROWS - len(content.others)
    free = room - content.tallies["virus"][0]
    regions = min(content.counts["regions"], max(MOST_REGION_ROWS, free))
    for v in islice(content.run.virus(), room - regions):
        kind = v.virus_kind.replace("unsure", "unsure kind")
        strange = "unfamiliar" if v.unfamiliar == "yes" else ""
        facts = (kind, strange, v.topology.replace("linear", ""), v.evidence.replace("ok", ""))
        remark = "; ".join(filter(None, (*facts, _genes(v))))
        shares = v.chunks_scored, v.coverage
        yield v.record, "virus", v.length, v.score, v.fdr, v.tier, *shares, remark
    for r in islice(content.run.regions(), regions):
        flanks = "" if r.flank_score is None else f"; score beside it {r.flank_score:.2f}"
        edge = "; reaches the end of the record" if r.at_edge else ""
        kind = r.virus_kind.replace("unsure", "unsure kind")
        remark = f"{kind}{flanks}{edge}; {_genes(r)}".removesuffix("; ")
        shares = r.chunks_scored, r.chunks_scored / r.chunks
        yield r.region, "region", r.length, r.score, r.fdr, r.tier, *shares, remark
    for c in content.others:
        remark = "one chunk" if c.chunks_scored == 1 else "little scored"
        if c.call == "unscored":
            remark = c.status.replace("_", " ")
        elif c.regions:
            remark = f"viral regions: {c.regions:,}"
        elif c.chunks_scored > 1 and c.coverage >= LITTLE:
            remark = ""
        shares = c.chunks_scored, c.coverage
        yield c.record, c.call, c.length, c.virus_score, c.fdr, c.tier, *shares, remark


def _genes(row: VirusRow | RegionRow) -> str:
    """Return how many genes a row has, and the names of those that are hallmarks."""
    count = "" if row.genes is None else counted(row.genes, "gene")
    return "; ".join(filter(None, (count, (row.hallmark_genes or "").replace(";", ", "))))
