"""Writing reports and overviews."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from virnucpro.errors import InputError
from virnucpro.layout import Layout
from virnucpro.results import PredictionRun, open_run
from virnucpro.store.disk import Disk

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
    """Write the report of a run and return its path; ``again`` also where there is one.

    One that is there is up to date: a new record of the run removes it.

    Raises InputError where a file of the run is missing or damaged.
    """
    report = Layout(run.folder, run.stem).report
    if again or report.is_symlink() or not report.exists():
        from virnucpro.report.page import report_page  # it imports numpy

        _write(report, report_page(run), disk)
    return report


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
    _write(path, rendered("overview.html", samples=samples, failed=failed), disk)


def _write(path: Path, text: str, disk: Disk) -> None:
    """Write a page, unless the same one is there."""
    page = text.encode("utf-8", "backslashreplace")  # a STEM may be no text
    if not path.is_file() or path.read_bytes() != page:
        disk.save(path, page, durable=False)
