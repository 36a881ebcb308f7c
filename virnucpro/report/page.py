"""Pages that stand alone, from the templates of this folder: what that of a report shows, and how
reports and overviews are written."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import quote

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, UndefinedError

from virnucpro.errors import InputError
from virnucpro.formatting import (
    calls_text,
    counted,
    part_of,
    percent,
    regions_text,
    seconds_text,
    shortened_ids,
)
from virnucpro.layout import Layout, picture_name
from virnucpro.report.content import HEADS, MOST_ROWS, read_content, table_rows
from virnucpro.report.plots import FEWEST_RECORDS, draw_plots, page_style, page_svg
from virnucpro.report.tracks import NAMED_REGIONS, Track, draw_track, read_tracks
from virnucpro.results import PredictionRun, open_run
from virnucpro.settings import DOUBTFUL, LONG_RECORDS, SHIPPED_MODELS
from virnucpro.store.disk import Disk
from virnucpro.tables import CONTIGS, REGIONS, VIRUS, RegionRow
from virnucpro.version import __version__

Drawn = tuple[str, Track, RegionRow | None, str, str]
"""The id of a record, or of a region of it that is drawn alone; the drawing, and it in words."""

MOST_DRAWN_REGIONS = 20
LONGEST_ID = 36  # letters
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
    highest_rate = np.fmax.reduce(content.of_call("virus")["fdr"], initial=0)
    tracks = read_tracks(run, content.tracked) if content.tracked else []
    rows, drawn = table_rows(content), list(_drawn(tracks))
    ids = [*(row["id"] for row in rows), *(id for id, *_ in drawn)]
    known = (name for name in HEADS if any(row[name] not in ("", None) for row in rows))
    return {
        "content": content,
        "inputs": ["standard input" if path == "-" else Path(path).name for path in paths],
        "highest_rate": highest_rate,
        "has_long_records": content.bases >= LONG_RECORDS * max(content.records, 1),
        "is_doubtful": highest_rate > DOUBTFUL,
        "is_unscored": max(unscored_shares) >= NOTEWORTHY,
        "tables": [table.path.format(stem=run.stem) for table in (VIRUS, REGIONS, CONTIGS)],
        "heads": {name: HEADS[name] for name in known} or HEADS,
        "rows": rows,
        "short_ids": shortened_ids(ids, LONGEST_ID),
        "most_rows": MOST_ROWS,
        "fewest_records": FEWEST_RECORDS,
        "plots": draw_plots(content),
        "tracks": drawn,
        "picture_name": picture_name,
        "named_regions": NAMED_REGIONS,
        "has_genes": any(track.genes for track in tracks),
        "virus_fasta": layout.virus_fasta.name,
        "virus_reads": [path.name for path in layout.virus_reads if path.is_file()],
        "shipped_models": SHIPPED_MODELS,
    }


def _drawn(tracks: Sequence[Track]) -> Iterator[Drawn]:
    """Yield each track, and behind a smoothed one its regions."""
    left = MOST_DRAWN_REGIONS
    for track in tracks:
        regions = track.regions[: min(left, NAMED_REGIONS)] if track.is_smoothed else []
        left -= len(regions)
        for region in (None, *regions):
            id = track.row.record if region is None else region.region
            words = track.description
            if region is not None:
                words = track.genes_text(region.start, region.end)
            with page_style(id):
                yield id, track, region, page_svg(draw_track(track, region), words or id), words


def rendered(template: str, **values: object) -> str:
    """Return the page of a template; jinja2.UndefinedError where a value of it is missing."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["version"] = __version__
    texts = (calls_text, counted, part_of, percent, regions_text, seconds_text, share)
    environment.filters |= {function.__name__: function for function in texts}
    environment.filters |= {
        "commas": "{:,}".format,
        "quoted": lambda path: quote(os.fsencode(path)),  # a path as it stands in a link
        "shell_words": lambda words: shlex.join(map(str, words)),
        # The checksum by which a browser knows the script that may run.
        "sha256": lambda text: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode(),
    }
    return environment


def share(part: float, whole: float) -> str:
    """Return a share in percent, with which a small one is not mistaken for none."""
    if not part:
        return "0 %"
    return percent(part / whole, 1) if part / whole >= 0.001 else "< 0.1 %"


# --- how pages are written


def report_problem(layout: Layout, disk: Disk) -> str:
    """Write a report as :func:`write_report` does; return what was in the way, if anything."""
    try:
        write_report(open_run(layout.root, layout.stem), disk)
    except InputError as error:
        return f"no report was written: {error}"
    return ""


def write_report(run: PredictionRun, disk: Disk, *, again: bool = False) -> Path:
    """Write the report of a run and return its path; ``again`` also where there is one.

    One that is there is up to date: a new record of the run removes it.

    Raises InputError where a file of the run is missing or damaged.
    """
    report = Layout(run.folder, run.stem).report
    if again or report.is_symlink() or not report.exists():
        _write(report, report_page(run), disk)
    return report


def write_overview(
    path: Path,
    runs: Sequence[tuple[str, PredictionRun]],
    disk: Disk,
    failed: Sequence[tuple[str, str]] = (),
) -> None:
    """Write the overview of named runs, and of the samples that ``failed`` with the reasons."""
    start = path.absolute().parent
    samples = [
        (name, os.path.relpath(Layout(run.folder, run.stem).report, start), run)
        for name, run in runs
    ]
    _write(path, rendered("overview.html", samples=samples, failed=failed), disk)


def _write(path: Path, text: str, disk: Disk) -> None:
    """Write a page, unless the same one is there."""
    page = text.encode("utf-8", "backslashreplace")  # a STEM may be no text
    if not path.is_file() or path.read_bytes() != page:
        disk.save(path, page, durable=False)
