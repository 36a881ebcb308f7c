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
HEADS = {
    "id": "the first word of the header, or the id of a viral region",
    "kind": "what the record is classified as; a region is the viral part of a record",
    "length": "in bases",
    "score": "from -1 (not viral) to 1 (viral)",
    "fdr": "estimated share of errors among this record and all more certain ones; it is large "
    "beside a high score where many records that are not viral score as high, as short reads do",
    "tier": "high where the score is clear, at least two chunks were scored, and fdr is small",
    "chunks scored": "the pieces of the record that have a score",
    "share scored": "the part of the record with a score, from 0 to 1",
    "remark": "kind and terminal repeats of a virus, place of a region, what weakens a call",
}
_Row = tuple[str, str, int, float | None, float | None, str | None, int, float, str]  # as HEADS
_EXPLAINED = ("score", "fdr", "tier", "share scored")  # also in the legend
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
    tables = (VIRUS, CONTIGS) if content.run.paired else (VIRUS, REGIONS, CONTIGS)
    *others, contigs = (file_link(table.path.format(stem=stem)) for table in tables)
    yield f"<p>The whole tables are {', '.join(others)} and, with every record, {contigs}.</p>"
    rows = sorted(_rows(content), key=lambda row: -2 if row[3] is None else row[3], reverse=True)
    if not rows:
        yield "<p>There are no records.</p>"
    if len(rows) < content.records + content.counts["regions"]:
        yield (
            f'<p class="muted">This page has {counted(len(rows), "row")}: the most certain '
            f"viruses, regions, and some of the other records. It holds at most {MOST_ROWS:,}.</p>"
        )
    yield _CONTROLS.format(name=escape(f"{stem}_rows.tsv"), fdr=_FDR if content.rated else "")
    legend = (f"<b>{head}</b>: {HEADS[head]}" for head in _EXPLAINED)
    yield f'<p class="muted">{"; ".join(legend)}.</p>'
    yield '<div class="wide long" tabindex="0" role="region" aria-label="Table">'
    yield '<table id="rows"><thead><tr>'
    for head, words in HEADS.items():
        order = "descending" if head == "score" else "none"
        kind = " class=n" if head in _NUMERIC else ""
        yield f'<th scope="col" title="{words}" aria-sort="{order}"{kind}>{head}</th>'
    yield "</tr></thead><tbody>"
    for id, kind, length, score, rate, tier, scored, coverage, remark in rows:
        fdr = f'<td class="n">{"" if rate is None else f"{rate:.3f}"}</td>'
        if rate is not None and rate < 0.001:  # the title has what is not shown
            fdr = f'<td class="n" title="{rate:.6f}">&lt;0.001</td>'
        yield (
            f'<tr data-kind="{kind}"><td class="id" tabindex="-1">{escape(id)}</td>'
            f'<td class="kind {kind}">{"region" if kind == "region" else KINDS[kind]}</td>'
            f'<td class="n">{length:,}</td>'
            f'<td class="n">{"" if score is None else f"{score:.3f}"}</td>'
            f'{fdr}<td>{escape(tier or "")}</td><td class="n">{scored:,}</td>'
            f'<td class="n">{coverage:.2f}</td><td class="remark">{escape(remark)}</td></tr>'
        )
    yield "</tbody></table></div>"
    yield '<button type="button" class="plain" id="all" hidden>Show all matching rows</button>'


def _rows(content: Content) -> Iterator[_Row]:
    """Yield at most ``MOST_ROWS`` rows: viruses, regions, and other records."""
    room = MOST_ROWS - len(content.others)
    free = room - content.tallies["virus"][0]
    regions = min(content.counts["regions"], max(MOST_REGION_ROWS, free))
    for v in islice(content.run.virus(), room - regions):
        kind = v.virus_kind.replace("unsure", "unsure kind")
        strange = "unfamiliar" if v.unfamiliar == "yes" else ""
        facts = (kind, strange, v.topology.replace("linear", ""), v.evidence.replace("ok", ""))
        remark = "; ".join(filter(None, facts))
        shares = v.chunks_scored, v.coverage
        yield v.record, "virus", v.length, v.score, v.fdr, v.tier, *shares, remark
    for r in islice(content.run.regions(), regions):
        flanks = "" if r.flank_score is None else f"; score beside it {r.flank_score:.2f}"
        edge = "; reaches the end of the record" if r.at_edge else ""
        remark = f"bases {r.start:,}-{r.end:,}{flanks}{edge}"
        shares = r.chunks_scored, r.chunks_scored / r.chunks
        yield r.region, "region", r.length, r.score, None, None, *shares, remark
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
