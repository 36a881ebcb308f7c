"""The table of a report: viruses, regions, and some of the other records."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from virnucpro.report.answer import KINDS
from virnucpro.report.content import MOST_ROWS, Content, TableRow
from virnucpro.report.document import file_link
from virnucpro.tables import CONTIGS, REGIONS, VIRUS

MOST_TEXT = 2_000_000  # characters of all rows; ids of thousands of letters reach it before 5,000
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
    virus, regions = VIRUS.place(stem), REGIONS.place(stem)
    rows = list(_rows(content))
    yield (
        f"<p>The whole tables are {file_link(virus)}, {file_link(regions)} and, with every record, "
        f"{file_link(CONTIGS.place(stem))}.</p>"
    )
    if not rows:
        yield "<p>There are no records.</p>"
    if len(rows) < content.records - content.tallies["virus"].records + _found(content):
        yield (
            f'<p class="muted">This page has {len(rows):,} rows: the surest viruses first, then '
            f"regions, then some of the other records. It holds at most {MOST_ROWS:,}.</p>"
        )
    name = escape(f"{stem}_rows.tsv")
    yield _CONTROLS.format(name=name, fdr=_FDR if content.calibrated else "")
    yield '<div class="wide long" tabindex="0" role="region" aria-label="Table">'
    yield '<table id="rows"><thead><tr>'
    yield "".join(
        f'<th scope="col"{" class=n" if head in _NUMERIC else ""}>{head}</th>' for head in HEADS
    )
    yield "</tr></thead><tbody>"
    yield from rows
    yield "</tbody></table></div>"
    yield '<button type="button" class="plain" id="all" hidden>Show all matching rows</button>'


def _found(content: Content) -> int:
    return content.tallies["virus"].records + content.regions


def _rows(content: Content) -> Iterator[str]:
    left = MOST_TEXT
    for row in content.rows:
        text = _row(row)
        left -= len(text.encode())
        if left < 0:
            return
        yield text


def _row(row: TableRow) -> str:
    cells = (
        f"{row.length:,}",
        _figure(row.score, 3),
        _rate(row.fdr),
    )
    after = (f"{row.chunks_scored:,}", _figure(row.coverage, 2))
    return (
        f'<tr data-kind="{row.kind}"><td class="id" tabindex="-1">{escape(row.id)}</td>'
        f'<td class="kind {row.kind}">{"region" if row.kind == "region" else KINDS[row.kind]}</td>'
        f"{_numbers(cells)}<td>{escape(row.tier or '')}</td>{_numbers(after)}"
        f'<td class="remark">{escape(row.remark)}</td></tr>'
    )


def _numbers(cells: tuple[str, ...]) -> str:
    return "".join(f'<td class="n">{cell}</td>' for cell in cells)


def _figure(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _rate(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if value >= 0.0001 or not value else f"{value:.0e}"
