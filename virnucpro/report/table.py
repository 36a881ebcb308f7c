"""The table of a report: viruses, regions, and some of the other records."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import islice

from virnucpro.formatting import counted
from virnucpro.report.content import Content
from virnucpro.report.document import KINDS, file_link
from virnucpro.stages.calls import LITTLE
from virnucpro.tables import CONTIGS, REGIONS, VIRUS

MOST_ROWS = 5000
MOST_REGION_ROWS = 1000  # of these, where more viruses were found than there are rows
HEADS = ("id", "kind", "length", "score", "fdr", "tier", "chunks scored", "share scored", "remark")
_NUMERIC = {"length", "score", "fdr", "chunks scored", "share scored"}
_CONTROLS = """\
<div class="controls" id="controls" hidden>
<label>Search ids <input type="search" id="search"></label>
<label>Score from <output id="score-value"></output>
<input type="range" id="score" min="-1" max="1" step="0.01" value="-1"></label>
{fdr}<label>Length from <output id="length-value"></output>
<input type="range" id="length" min="0" max="100" step="0.5" value="0"></label>
<button type="button" class="plain" id="copy">Copy ids</button>
<button type="button" class="plain" id="download" data-name="{name}">Download rows</button>
</div>
<p class="muted" id="count" role="status"></p>
"""
_FDR = """\
<label>fdr to <output id="fdr-value"></output>
<input type="range" id="fdr" min="0" max="1" step="0.005" value="1"></label>
"""


def table_section(content: Content) -> Iterator[str]:
    """Yield the table with its controls, which the script shows."""
    stem = content.run.stem
    virus, regions = file_link(VIRUS.place(stem)), file_link(REGIONS.place(stem))
    yield (
        f"<p>The whole tables are {virus}, {regions} and, with every record, "
        f"{file_link(CONTIGS.place(stem))}.</p>"
    )
    rows = list(_rows(content))
    if not rows:
        yield "<p>There are no records.</p>"
    if len(rows) < content.records + content.counts["regions"]:
        yield (
            f'<p class="muted">This page has {counted(len(rows), "row")}: the most certain viruses '
            f"first, then regions, then some of the other records. It holds at most "
            f"{MOST_ROWS:,}.</p>"
        )
    name = escape(f"{stem}_rows.tsv")
    yield _CONTROLS.format(name=name, fdr=_FDR if content.calibrated else "")
    yield '<div class="wide long" tabindex="0" role="region" aria-label="Table">'
    yield '<table id="rows"><thead><tr>'
    for head in HEADS:
        yield f'<th scope="col"{" class=n" if head in _NUMERIC else ""}>{head}</th>'
    yield "</tr></thead><tbody>"
    yield from rows
    yield "</tbody></table></div>"
    yield '<button type="button" class="plain" id="all" hidden>Show all matching rows</button>'


def _rows(content: Content) -> Iterator[str]:
    """Yield at most ``MOST_ROWS`` rows: viruses, regions, and other records."""
    room = MOST_ROWS - len(content.others)
    free = room - content.tallies["virus"].records
    regions = min(content.counts["regions"], max(MOST_REGION_ROWS, free))
    for v in islice(content.run.virus(), room - regions):
        remark = "" if v.evidence == "ok" else v.evidence
        shares = v.chunks_scored, v.coverage
        yield _row(v.record, "virus", v.length, v.score, v.fdr, v.tier, *shares, remark)
    for r in islice(content.run.regions(), regions):
        flanks = "" if r.flank_score is None else f"; flanks {r.flank_score:.2f}"
        edge = "; reaches the end of the record" if r.at_edge else ""
        remark = f"bases {r.start:,} to {r.end:,}{flanks}{edge}"
        shares = r.chunks_scored, r.chunks_scored / r.chunks
        yield _row(r.region, "region", r.length, r.score, None, None, *shares, remark)
    for c in content.others:
        remark = "one chunk" if c.chunks_scored == 1 else "little scored"
        if c.call == "unscored":
            remark = c.status.replace("_", " ")
        elif c.regions:
            remark = f"viral regions: {c.regions:,}"
        elif c.chunks_scored > 1 and c.coverage >= LITTLE:
            remark = ""
        shares = c.chunks_scored, c.coverage
        yield _row(c.record, c.call, c.length, c.virus_score, c.fdr, c.tier, *shares, remark)


def _row(
    id: str,
    kind: str,
    length: int,
    score: float | None,
    rate: float | None,
    tier: str | None,
    scored: int,
    coverage: float,
    remark: str,
) -> str:
    shown = "" if rate is None else f"{rate:.0e}" if 0 < rate < 0.0001 else f"{rate:.4f}"
    return (
        f'<tr data-kind="{kind}"><td class="id" tabindex="-1">{escape(id)}</td>'
        f'<td class="kind {kind}">{"region" if kind == "region" else KINDS[kind]}</td>'
        f'<td class="n">{length:,}</td><td class="n">{"" if score is None else f"{score:.3f}"}</td>'
        f'<td class="n">{shown}</td><td>{escape(tier or "")}</td><td class="n">{scored:,}</td>'
        f'<td class="n">{coverage:.2f}</td><td class="remark">{escape(remark)}</td></tr>'
    )
