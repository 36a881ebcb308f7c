"""Writing reports and overviews: whether one is up to date, and that it replaces no other file.

The last line of a page proves its text: a page that somebody has changed is moved aside.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from virnucpro.errors import InputError, UsageError
from virnucpro.formatting import counted
from virnucpro.layout import Layout, existing_paths
from virnucpro.report.document import KINDS, MARK, file_link, grid, page
from virnucpro.results import PredictionRun, open_run
from virnucpro.store.disk import Disk, hashed, is_own_file
from virnucpro.store.work import make_way
from virnucpro.version import __version__

NamedRuns = Sequence[tuple[str, PredictionRun]]
"""Finished runs, and what they are called in an overview."""


_LAST_LINE = "<!-- made from "


def report_problem(layout: Layout, disk: Disk, *, again: bool = False) -> str:
    """Write a report as :func:`write_report` does; return what was in the way, if anything."""
    try:
        write_report(open_run(layout.root, layout.stem), disk, again=again)
    except (InputError, UsageError) as error:
        return f"no report was written: {error}"
    return ""


def write_report(run: PredictionRun, disk: Disk, *, again: bool = False) -> Path:
    """Write the report of a run and return its path; ``again`` also where it is up to date.

    Raises:
        InputError: a file of the run is missing or damaged.
        UsageError: the report would replace a file that the program did not write.
    """
    layout = Layout(run.folder, run.stem)
    earlier = earlier_page(layout.report)
    try:  # the record of a run is written anew whenever a result is, so it stands for all of them
        source = f"{__version__} {hashed(layout.run_json).sha256}"
    except OSError as error:
        raise InputError(f"{layout.run_json} cannot be read: {error}") from error
    if again or _source_of(earlier) != source:
        from virnucpro.report.page import report_page  # it imports numpy

        _replace(layout.report, earlier, report_page(run), source, disk)
    return layout.report


def write_overview(
    path: Path, runs: NamedRuns, disk: Disk, failed: Sequence[tuple[str, str]] = ()
) -> None:
    """Write the overview of runs, and of the samples that ``failed`` with the reasons.

    See :func:`write_report` for the errors that it raises.
    """
    calls = {kind: name for kind, name in KINDS.items() if kind != "region"}
    heads, rows = ["sample", "model", "records", *calls.values(), "with regions"], []
    for name, run in runs:
        counts, model = run.record["counts"], run.record["settings"]["analysis"]["model_type"]
        hosts = int(counts.get("records_with_regions_not_called_virus", 0))
        found = [run.summary.records, *(run.summary.calls.get(call, 0) for call in calls), hosts]
        report = os.path.relpath(Layout(run.folder, run.stem).report, path.absolute().parent)
        rows.append([file_link(report, name), str(model), *(f"{n:,}" for n in found)])
    body = [
        "<main>",
        "<h1>VirNucPro: overview</h1>",
        f"<p>{counted(len(runs), 'sample')}. Each name leads to the report of the sample.</p>",
        grid(heads, rows, numeric=2),
        '<p class="muted">With regions: records that are not classified as viral and hold viral '
        "regions.</p>",
    ]
    if failed:
        body += ["<h2>Samples that failed</h2>", grid(["sample", "why"], failed, numeric=2)]
    text = page("VirNucPro: overview", [*body, "</main>"])
    _replace(path, earlier_page(path), text, __version__, disk)


def earlier_page(path: Path) -> str:
    """Return the page that is to be replaced; UsageError where another file has its name."""
    if not existing_paths(path):
        return ""
    text = path.read_bytes().decode("utf-8", "replace") if is_own_file(path) else ""
    if MARK not in text:
        raise UsageError(f"{path} is not a report of this program: move it away, or rename it")
    return text


def _replace(path: Path, earlier: str, text: str, source: str, disk: Disk) -> None:
    """Write a page; an ``earlier`` one that somebody has changed is moved aside."""
    text = text.encode("utf-8", "backslashreplace").decode()  # a STEM need not be UTF-8
    page = text + _last_line(text, source)
    if earlier and _source_of(earlier) is None:
        make_way(path, disk)
    if page != earlier:
        disk.save(path, page.encode())


def _last_line(text: str, source: str) -> str:
    """Return the line behind a page that tells what it was made from, and proves its text."""
    return f"{_LAST_LINE}{source}, text {hashlib.sha256(text.encode()).hexdigest()} -->\n"


def _source_of(page: str) -> str | None:
    """Return what a page was made from; None where it was changed since, or is of somebody else."""
    text, _, line = page.rpartition(_LAST_LINE)
    source = line.partition(", text ")[0]
    return source if page == text + _last_line(text, source) else None
