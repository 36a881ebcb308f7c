"""Writing reports and overviews; the last line of a page says what it was made from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from virnucpro.errors import InputError
from virnucpro.layout import Layout
from virnucpro.results import PredictionRun, open_run
from virnucpro.store.disk import Disk
from virnucpro.store.hashed import hashed
from virnucpro.version import __version__

NamedRuns = Sequence[tuple[str, PredictionRun]]
"""Finished runs, and what they are called in an overview."""


def report_problem(layout: Layout, disk: Disk) -> str:
    """Write a report as :func:`write_report` does; return what was in the way, if anything."""
    try:
        write_report(open_run(layout.root, layout.stem), disk)
    except InputError as error:
        return f"no report was written: {error}"
    return ""


def write_report(run: PredictionRun, disk: Disk, *, again: bool = False) -> Path:
    """Write the report of a run and return its path; ``again`` also where it is up to date.

    Raises InputError where a file of the run is missing or damaged.
    """
    layout = Layout(run.folder, run.stem)
    try:  # the record of a run is written anew whenever a result is, so it stands for all of them
        source = f"{__version__} {hashed(layout.run_json).sha256}"
    except OSError as error:
        raise InputError(f"{layout.run_json} cannot be read: {error}") from error
    is_ours = disk.wrote(layout.report)
    if again or not (is_ours and layout.report.read_bytes().endswith(_last_line(source))):
        from virnucpro.report.page import report_page  # it imports numpy

        _write(layout.report, report_page(run), source, disk)
    return layout.report


def write_overview(
    path: Path, runs: NamedRuns, disk: Disk, failed: Sequence[tuple[str, str]] = ()
) -> None:
    """Write the overview of runs, and of the samples that ``failed`` with the reasons."""
    from virnucpro.report.page import rendered

    start = path.absolute().parent
    samples = [
        (name, os.path.relpath(Layout(run.folder, run.stem).report, start), run)
        for name, run in runs
    ]
    text = rendered("overview.html", samples=samples, failed=failed)
    _write(path, text, __version__, disk)


def _write(path: Path, text: str, source: str, disk: Disk) -> None:
    """Write a page, unless the same one is there."""
    page = text.encode("utf-8", "backslashreplace") + _last_line(source)  # a STEM may be no text
    if not path.is_file() or path.read_bytes() != page:
        disk.save(path, page, durable=False)


def _last_line(source: str) -> bytes:
    return f"<!-- made from {source} -->\n".encode()
