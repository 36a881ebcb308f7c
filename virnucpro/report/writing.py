"""Writing reports and overviews: whether one is up to date, and that it replaces no other file.

The last line of a page proves its text: a page that somebody has changed is moved aside.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from virnucpro.errors import InputError, UsageError
from virnucpro.events import Emit, ReportFinished, ReportStarted, unseen
from virnucpro.layout import Layout, checkpoint_folder, existing_paths
from virnucpro.report.document import MARK
from virnucpro.report.overview import NamedRuns, overview_page
from virnucpro.results import PredictionRun, open_run
from virnucpro.store.disk import Disk, is_own_file, sha256_of
from virnucpro.store.work import ExistingWork, move_aside
from virnucpro.version import __version__

_LAST_LINE = "<!-- made from "


def report_problem(layout: Layout, disk: Disk, emit: Emit = unseen) -> str:
    """Write the report of a finished run, unless it is up to date; return what was in the way.

    Results without a report are results all the same.

    Raises:
        OutputError: the disk is full or not writable.
    """
    try:
        write_report(open_run(layout.root, layout.stem), disk, emit)
    except (InputError, UsageError) as error:
        return f"no report was written: {error}"
    return ""


def write_report(
    run: PredictionRun, disk: Disk, emit: Emit = unseen, *, again: bool = False
) -> Path:
    """Write the report of a run and return its path; ``again`` also where it is up to date.

    Raises:
        InputError: a file of the run is missing or damaged.
        UsageError: the report would replace a file that the program did not write.
        OutputError: it cannot be written.
    """
    layout = Layout(run.folder, run.stem)
    path, source = layout.report, _source(layout)
    earlier = text_of(path)
    if earlier is not None and not again and _source_of(earlier) == source:
        return path
    refuse_other_file(path, earlier)
    from virnucpro.report.page import report_page  # it imports numpy

    started = time.perf_counter()
    emit(ReportStarted(run.summary.records))
    _replace(path, earlier, report_page(run, emit), source, disk)
    emit(ReportFinished(time.perf_counter() - started))
    return path


def write_overview(path: Path, runs: NamedRuns, disk: Disk) -> None:
    """Write the overview of runs.

    Raises:
        InputError: the record of a run was changed.
        UsageError: the overview would replace a file that the program did not write.
        OutputError: it cannot be written.
    """
    text, earlier = overview_page(runs, path.absolute().parent), text_of(path)
    refuse_other_file(path, earlier)
    _replace(path, earlier, text, __version__, disk)


def _replace(path: Path, earlier: str | None, text: str, source: str, disk: Disk) -> None:
    """Write a page; an ``earlier`` one that somebody has changed is moved aside."""
    text = text.encode("utf-8", "backslashreplace").decode()  # a STEM need not be UTF-8
    page = text + last_line(text, source)
    if earlier is not None and _source_of(earlier) is None:
        previous = checkpoint_folder(path.absolute().parent) / f"{path.name}.previous"
        move_aside(ExistingWork(path.parent, previous, foreign_files=[path]), disk)
    if page != earlier:
        disk.save(path, page.encode())


def _source(layout: Layout) -> str:
    """Return what a report depends on.

    ``STEM_run.json`` is written anew whenever a result is, so its digest stands for all of them.
    """
    try:
        return f"{__version__} {sha256_of(layout.run_json)}"
    except OSError as error:
        raise InputError(f"{layout.run_json} cannot be read: {error}") from error


def last_line(text: str, source: str) -> str:
    """Return the line behind a report that tells what it was made from, and proves its text."""
    return f"{_LAST_LINE}{source}, text {hashlib.sha256(text.encode()).hexdigest()} -->\n"


def _source_of(page: str) -> str | None:
    """Return what a page was made from; None where it was changed since, or is of somebody else."""
    text, _, line = page.rpartition(_LAST_LINE)
    source = line.partition(", text ")[0]
    return source if page == text + last_line(text, source) else None


def refuse_other_file(path: Path, text: str | None) -> None:
    """Refuse to replace a file that is no report, or that is a link.

    Raises:
        UsageError: it is one.
    """
    if existing_paths(path) and MARK not in (text or ""):
        raise UsageError(f"{path} is not a report of this program: move it away, or rename it")


def text_of(path: Path) -> str | None:
    """Return the content of a file; None where there is none that can be read as text."""
    if not is_own_file(path):
        return None
    return path.read_bytes().decode("utf-8", "replace")
