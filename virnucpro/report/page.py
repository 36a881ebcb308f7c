"""The report of one run: what its template shows, put together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import UndefinedError

from virnucpro.errors import InputError
from virnucpro.layout import Layout, picture_name
from virnucpro.report.content import read_content
from virnucpro.report.document import flat, rendered
from virnucpro.report.figures import FEWEST_RECORDS, draw_figures, page_style, page_svg
from virnucpro.report.table import HEADS, MOST_ROWS, table_rows
from virnucpro.report.tracks import Track, draw_track, read_tracks
from virnucpro.results import PredictionRun
from virnucpro.settings import DOUBTFUL, SHIPPED_MODELS
from virnucpro.tables import CONTIGS, REGIONS, VIRUS

SHORTEST_TIMED = 0.01  # seconds; of less no rate can be told
MOST_HOVER_CHUNKS = 60_000  # of all tracks; of more, the page would be too large
NOTEWORTHY = 0.05  # of the records or bases; a smaller share is not worth a warning


def report_page(run: PredictionRun) -> str:
    """Return the report of a run as one HTML page; InputError for a damaged file of the run."""
    try:
        return rendered("report.html", run=run, record=run.record, **_values(run))
    except (AttributeError, LookupError, TypeError, UndefinedError, ValueError) as error:
        raise InputError(
            f"the files of the run {run.folder / run.stem} were changed ({error!r}); the command "
            f"that made them restores them"
        ) from error


def _values(run: PredictionRun) -> dict[str, object]:
    """Return what the template of reports shows beside the record of the run."""
    content, layout = read_content(run), Layout(run.folder, run.stem)
    first = run.record["input"]
    paths = [str(file["path"]) for file in (first, first.get("mates")) if file is not None]
    unscored, unscored_bases = content.tallies["unscored"]
    unscored_shares = unscored / max(content.records, 1), unscored_bases / max(content.bases, 1)
    short = int((2 * content.figures["length"] < content.chunk_length).sum())
    highest_rate = np.fmax.reduce(content.of_call("virus")["fdr"], initial=0)
    tracks = read_tracks(run, content.tracked) if content.tracked else []
    return {
        "content": content,
        "inputs": ["standard input" if path == "-" else Path(path).name for path in paths],
        "highest_rate": highest_rate,
        "is_doubtful": highest_rate > DOUBTFUL,
        "is_unscored": max(unscored_shares) >= NOTEWORTHY,
        "short": short,
        "is_short": short > NOTEWORTHY * content.records,
        "tables": [table.path.format(stem=run.stem) for table in (VIRUS, REGIONS, CONTIGS)],
        "heads": HEADS,
        "rows": table_rows(content),
        "most_rows": MOST_ROWS,
        "fewest_records": FEWEST_RECORDS,
        "figures": draw_figures(content),
        "tracks": list(_drawn(tracks)),
        "hover": json.dumps(_hover(tracks), separators=(",", ":")),
        "shortest_timed": SHORTEST_TIMED,
        "settings": flat(run.record["settings"]),
        "virus_fasta": layout.virus_fasta.name,
        "virus_reads": [path.name for path in layout.virus_reads if path.is_file()],
        "shipped_models": SHIPPED_MODELS,
    }


def _drawn(tracks: Sequence[Track]) -> Iterator[tuple[Track, str, str]]:
    """Yield each track, its drawing, and the name of the drawing as a file."""
    for track in tracks:
        with page_style(track.row.record):
            drawing = page_svg(draw_track(track), track.description)
        yield track, drawing, picture_name(track.row.record, "svg")


def _hover(tracks: Sequence[Track]) -> list[list[Any] | None]:
    """Return places of chunks, and thousandths of their scores, -1 for no score, by track."""
    hover, left = list[list[Any] | None](), MOST_HOVER_CHUNKS
    for track in tracks:
        hover.append(None)
        if len(track.starts) <= left:
            left -= len(track.starts)
            scores = np.nan_to_num(np.round(np.multiply(1000, [track.virus, track.others])), nan=-1)
            hover[-1] = [track.row.length, track.starts, track.ends, *scores.astype(int).tolist()]
    return hover
