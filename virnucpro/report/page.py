"""The report of one run: its sections in their order."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from virnucpro.errors import InputError
from virnucpro.events import Emit, unseen
from virnucpro.formatting import counted
from virnucpro.layout import picture_name
from virnucpro.report.answer import answer_section, tiles_section
from virnucpro.report.content import Content, read_content
from virnucpro.report.document import KINDS, page, part
from virnucpro.report.figures import FEWEST_RECORDS, draw_figures, page_style, page_svg
from virnucpro.report.record import next_section, run_section
from virnucpro.report.table import table_section
from virnucpro.report.tracks import draw_track, hover_data, read_tracks
from virnucpro.results import PredictionRun

MOST_HOVER_CHUNKS = 60_000  # of all tracks; of more, the page would be too large


def report_page(run: PredictionRun, emit: Emit = unseen) -> str:
    """Return the report of a run as one HTML page; InputError for a damaged file of the run."""
    sections = {
        "answer": ("The answer", answer_section),
        "counts": ("Records and bases", tiles_section),
        "table": ("Viruses and regions", table_section),
        "figures": ("Figures", _figures_section),
        "tracks": ("Tracks", _tracks_section),
        "run": ("The run", run_section),
        "next": ("What next", next_section),
    }
    body = [f"<header><h1>VirNucPro: {escape(run.stem)}</h1>", "<nav>"]
    body += (f'<a href="#{name}">{title}</a>' for name, (title, _) in sections.items())
    body.append("</nav></header>\n<main>")
    try:
        content = read_content(run, emit)
        for name, (title, lines) in sections.items():
            body += [f'<section id="{name}"><h2>{title}</h2>', *lines(content), "</section>"]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"the files of the run {run.folder / run.stem} were changed ({error!r}); the command "
            f"that made them restores them"
        ) from error
    body.append("</main>")
    return page(f"VirNucPro: {run.stem}", body, part("page.js"))


def _figures_section(content: Content) -> Iterator[str]:
    if content.scored < FEWEST_RECORDS:
        yield (
            f"<p>Figures are drawn from {FEWEST_RECORDS} scored records on; this run has "
            f"{content.scored:,}.</p>"
        )
        return
    yield '<div class="figures">'
    for title, drawing, words in draw_figures(content):
        words = escape(words)
        yield f"<figure><h3>{title}</h3>{drawing}<figcaption>{words}</figcaption></figure>"
    yield "</div>"
    if not content.calibrated:
        yield "<p>There is no figure of errors: the classifier is not calibrated.</p>"


def _tracks_section(content: Content) -> Iterator[str]:
    if not content.tracked:
        yield "<p>No record has enough chunks for a track.</p>"
        return
    yield """\
<p>The score of each chunk along the record, from 1 (like a virus) to -1 (like others). \
Records with viral regions come first, then the longest. Point at a track, or select it \
with the tab key and use the arrow keys, to read the scores.</p>
<ul class="legend">
<li class="virus"><i></i>more like virus</li>
<li class="nonvirus"><i></i>more like others</li>
<li class="unscored"><i class="bar"></i>not scored, in the lane below the scores</li>
<li class="region"><i class="area"></i>viral region</li>
</ul>"""
    hover, left = list[str](), MOST_HOVER_CHUNKS
    tracks = read_tracks(content.run, content.tracked)
    for track in tracks:
        room = left - len(track.starts)
        hover.append(hover_data(track) if room >= 0 else "null")
        left = room if room >= 0 else left
        id, words = track.row.record, track.description
        with page_style(id):
            drawing = page_svg(draw_track(track), words)
        yield (
            f'<figure class="track-box"><div class="head"><div><h3>{escape(id)}</h3>'
            f'<p class="muted">{KINDS[track.row.call]}, {track.score_text}</p></div>'
            f'<button type="button" class="plain" hidden data-name="'
            f'{escape(picture_name(id, "svg"))}">Save as SVG</button></div>'
            f'<div class="wide">{drawing}</div><output></output>'
            f"<figcaption>{escape(words)}</figcaption></figure>"
        )
    yield f'<script type="application/json" id="track-data">[{",".join(hover)}]</script>'
    yield (
        f"<p>{counted(len(tracks), 'track')} of {counted(content.records, 'record')}. Any other is "
        f"drawn by: <code>virnucpro plot DIR --record ID</code></p>"
    )
