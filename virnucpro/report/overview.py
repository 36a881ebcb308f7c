"""The overview of several runs: samples by counts, with links to their reports."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from virnucpro.formatting import counted
from virnucpro.layout import Layout
from virnucpro.report.answer import share
from virnucpro.report.document import page
from virnucpro.results import PredictionRun

_CALLS = {
    "virus": "virus",
    "undecided": "undecided",
    "nonvirus": "nonvirus",
    "unscored": "not judged",
}


NamedRuns = Sequence[tuple[str, PredictionRun]]
"""Finished runs, and what they are called in an overview."""


def overview_page(samples: NamedRuns, folder: Path) -> str:
    """Return the overview as a page that will lie in ``folder``.

    Raises:
        InputError: the record of a run was changed.
    """
    body = [
        "<h1>VirNucPro: overview</h1>",
        f"<p>{counted(len(samples), 'sample')}. Each name leads to the report of the sample.</p>",
        '<ul class="legend">',
        *(f'<li class="{call}"><i></i>{name}</li>' for call, name in _CALLS.items()),
        "</ul>",
        '<div class="wide"><table id="samples"><thead><tr><th scope="col">sample</th>'
        '<th scope="col">model</th><th scope="col" class="n">records</th>',
        *(f'<th scope="col" class="n">{name}</th>' for name in _CALLS.values()),
        '<th scope="col" class="n">with regions</th><th scope="col">share of records</th></tr>'
        "</thead><tbody>",
        *(line for name, run in samples for line in _sample_row(name, run, folder)),
        "</tbody></table></div>",
        '<p class="muted">With regions: records that are not called virus and hold viral '
        "regions.</p>",
    ]
    return page("VirNucPro: overview", body)


def _sample_row(name: str, run: PredictionRun, folder: Path) -> Iterator[str]:
    summary, record = run.summary, run.record
    link = quote(os.fsencode(os.path.relpath(Layout(run.folder, run.stem).report, folder)))
    yield f'<tr><td class="id"><a href="./{link}">{escape(name)}</a></td>'
    yield f"<td>{escape(str(record['settings']['analysis']['model_type']))}</td>"
    yield f'<td class="n">{summary.records:,}</td>'
    for call in _CALLS:
        yield f'<td class="n">{summary.calls.get(call, 0):,}</td>'
    hosts = record["counts"].get("records_with_regions_not_called_virus", 0)
    yield f'<td class="n">{int(hosts):,}</td>'
    yield f"<td>{_bar(summary.calls, summary.records)}</td></tr>"


def _bar(calls: Mapping[str, int], records: int) -> str:
    """Return the shares of the calls as one bar."""
    words = ", ".join(
        f"{name} {share(calls.get(call, 0), records)}" for call, name in _CALLS.items()
    )
    parts, left = [], 0.0
    for call in _CALLS:
        width = 100 * calls.get(call, 0) / max(records, 1)
        parts.append(
            f'<rect class="{call}" x="{left:.2f}" width="{width:.2f}" height="10" '
            f'fill="var(--kind)"/>'
        )
        left += width
    return (
        f'<svg class="shares" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(words)}">{"".join(parts)}</svg>'
    )
