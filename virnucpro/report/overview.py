"""The overview of several runs: samples by counts, with links to their reports."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from virnucpro.formatting import counted
from virnucpro.layout import Layout
from virnucpro.report.document import KINDS, file_link, page, share
from virnucpro.results import PredictionRun

_CALLS = {kind: name for kind, name in KINDS.items() if kind != "region"}
NamedRuns = Sequence[tuple[str, PredictionRun]]
"""Finished runs, and what they are called in an overview."""


def overview_page(samples: NamedRuns, folder: Path) -> str:
    """Return the overview as a page that will lie in ``folder``."""
    heads = ("records", *_CALLS.values(), "with regions")
    body = [
        "<h1>VirNucPro: overview</h1>",
        f"<p>{counted(len(samples), 'sample')}. Each name leads to the report of the sample.</p>",
        '<ul class="legend">',
        *(f'<li class="{call}"><i></i>{name}</li>' for call, name in _CALLS.items()),
        "</ul>",
        '<div class="wide"><table id="samples"><thead><tr><th scope="col">sample</th>'
        '<th scope="col">model</th>',
        *(f'<th scope="col" class="n">{name}</th>' for name in heads),
        '<th scope="col">share of records</th></tr></thead><tbody>',
        *(line for name, run in samples for line in _sample_row(name, run, folder)),
        "</tbody></table></div>",
        '<p class="muted">With regions: records that are not called virus and hold viral '
        "regions.</p>",
    ]
    return page("VirNucPro: overview", body)


def _sample_row(name: str, run: PredictionRun, folder: Path) -> Iterator[str]:
    summary, record = run.summary, run.record
    report = os.path.relpath(Layout(run.folder, run.stem).report, folder)
    calls = {call: summary.calls.get(call, 0) for call in _CALLS}
    hosts = int(record["counts"].get("records_with_regions_not_called_virus", 0))
    yield f'<tr><td class="id">{file_link(report, name)}</td>'
    yield f"<td>{escape(str(record['settings']['analysis']['model_type']))}</td>"
    for count in (summary.records, *calls.values(), hosts):
        yield f'<td class="n">{count:,}</td>'
    words = ", ".join(f"{_CALLS[call]} {share(n, summary.records)}" for call, n in calls.items())
    yield (
        f'<td><svg class="shares" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{words}">'
    )
    left = 0.0
    for call, count in calls.items():
        width = 100 * count / max(summary.records, 1)
        yield (
            f'<rect class="{call}" x="{left:.2f}" width="{width:.2f}" height="10" '
            f'fill="var(--kind)"/>'
        )
        left += width
    yield "</svg></td></tr>"
