"""The report of one run: its sections in their order."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from virnucpro.errors import InputError
from virnucpro.events import Emit, unseen
from virnucpro.formatting import counted
from virnucpro.layout import picture_name
from virnucpro.report.answer import KINDS, answer_section, tiles_section
from virnucpro.report.content import Content, read_content
from virnucpro.report.document import json_block, page, part
from virnucpro.report.figures import FEWEST_RECORDS, draw_figures
from virnucpro.report.record import next_section, run_section
from virnucpro.report.table import table_section
from virnucpro.report.tracks import (
    MOST_DRAWN,
    MOST_HOVER_CHUNKS,
    STYLE,
    hover_data,
    read_tracks,
    track_svg,
)
from virnucpro.results import PredictionRun

_SECTIONS = {
    "answer": "The answer",
    "counts": "Records and bases",
    "table": "Viruses and regions",
    "figures": "Figures",
    "tracks": "Tracks",
    "run": "The run",
    "next": "What next",
}


_LEGEND = """\
<ul class="legend">
<li class="virus"><i></i>more like virus</li>
<li class="nonvirus"><i></i>more like others</li>
<li class="unscored"><i class="bar"></i>not scored, in the lane below the scores</li>
<li class="region"><i class="area"></i>viral region</li>
</ul>"""


def report_page(run: PredictionRun, emit: Emit = unseen) -> str:
    """Return the report of a run as one HTML page. The same files give the same page.

    Raises:
        InputError: a file of the run is missing or damaged, or was written by an earlier version.
    """
    content = read_content(run, emit)
    try:
        sections = {
            "answer": [*answer_section(content)],
            "counts": [*tiles_section(content)],
            "table": [*table_section(content)],
            "figures": [*_figures_section(content)],
            "tracks": [*_tracks_section(content)],
            "run": [*run_section(content)],
            "next": [*next_section(content)],
        }
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{run.folder / run.stem}_run.json was changed ({error!r}); the command that made it "
            f"restores it"
        ) from error
    body = [f"<header><h1>VirNucPro: {escape(run.stem)}</h1>", "<nav>"]
    body += (f'<a href="#{name}">{_SECTIONS[name]}</a>' for name in sections)
    body.append("</nav></header>\n<main>")
    for name, lines in sections.items():
        body += [f'<section id="{name}"><h2>{_SECTIONS[name]}</h2>', *lines, "</section>"]
    body.append("</main>")
    style = f'<style id="track-style">{STYLE}</style>'
    return page(f"VirNucPro: {run.stem}", body, script=part("page.js"), style=style)


def _figures_section(content: Content) -> Iterator[str]:
    figures = draw_figures(content)
    if not figures:
        yield (
            f"<p>Figures are drawn from {FEWEST_RECORDS} scored records on; this run has "
            f"{content.scored:,}.</p>"
        )
        return
    yield '<div class="figures">'
    for figure in figures:
        title, words = escape(figure.title), escape(figure.description)
        drawing = figure.svg.replace("<svg ", f'<svg role="img" aria-label="{title}. {words}" ', 1)
        yield f"<figure><h3>{title}</h3>{drawing}<figcaption>{words}</figcaption></figure>"
    yield "</div>"
    if content.calibrated is False:
        yield "<p>There is no figure of errors: the classifier is not calibrated.</p>"


def _tracks_section(content: Content) -> Iterator[str]:
    """Yield the tracks, as many as the page has room for."""
    if not content.tracked:
        yield "<p>No record has enough chunks for a track.</p>"
        return
    yield (
        "<p>The score of each chunk along the record, from 1 (like a virus) to -1 (like others). "
        "Records with viral regions come first, then the longest. Point at a track, or select it "
        "with the tab key and use the arrow keys, to read the scores.</p>"
    )
    yield _LEGEND
    drawn, hover, left = 0, list[str](), MOST_HOVER_CHUNKS
    room = MOST_DRAWN
    for track in read_tracks(content.run, content.tracked, content.region_rows):
        drawing = track_svg(track)
        room -= len(drawing)
        if room < 0 and drawn:
            break
        left -= len(track.starts)
        hover.append(hover_data(track) if left >= 0 else "null")
        left += len(track.starts) if left < 0 else 0
        drawn += 1
        score = "not scored" if track.score is None else f"virus score {track.score:.3f}"
        yield (
            f'<figure class="track-box"><div class="head"><div><h3>{escape(track.record)}</h3>'
            f'<p class="muted">{KINDS[track.call]}, {score}</p></div>'
            f'<button type="button" class="plain" hidden data-name="'
            f'{escape(picture_name(track.record, "svg"))}">Save as SVG</button></div>'
            f'<div class="wide">{drawing}</div><output></output>'
            f"<figcaption>{escape(track.description)}</figcaption></figure>"
        )
    yield json_block("track-data", f"[{','.join(hover)}]")
    yield (
        f"<p>{counted(drawn, 'track')} of {counted(content.records, 'record')}. Any other is drawn "
        f"by: <code>virnucpro plot DIR --record ID</code></p>"
    )
