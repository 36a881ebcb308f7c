"""Writing reports and overviews; the last line of a page says what it was made from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from virnucpro.errors import InputError
from virnucpro.formatting import counted
from virnucpro.layout import Layout
from virnucpro.report.document import KINDS, file_link, grid, page
from virnucpro.results import PredictionRun, open_run
from virnucpro.store.disk import Disk
from virnucpro.store.hashed import hashed
from virnucpro.version import __version__

NamedRuns = Sequence[tuple[str, PredictionRun]]
"""Finished runs, and what they are called in an overview."""


def report_problem(layout: Layout, disk: Disk, *, again: bool = False) -> str:
    """Write a report as :func:`write_report` does; return what was in the way, if anything."""
    try:
        write_report(open_run(layout.root, layout.stem), disk, again=again)
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
    is_current = disk.wrote(layout.report) and _read(layout.report).endswith(_last_line(source))
    if again or not is_current:
        from virnucpro.report.page import report_page  # it imports numpy

        _write(layout.report, report_page(run), source, disk)
    return layout.report


def write_overview(
    path: Path, runs: NamedRuns, disk: Disk, failed: Sequence[tuple[str, str]] = ()
) -> None:
    """Write the overview of runs, and of the samples that ``failed`` with the reasons."""
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
    _write(path, text, __version__, disk)


def _write(path: Path, text: str, source: str, disk: Disk) -> None:
    """Write a page, unless the same one is there."""
    page = text.encode("utf-8", "backslashreplace") + _last_line(source)  # a STEM may be no text
    if page != _read(path):
        disk.save(path, page, durable=False)


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _last_line(source: str) -> bytes:
    return f"<!-- made from {source} -->\n".encode()
