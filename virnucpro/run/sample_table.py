"""What several inputs have in common: their table and their overview, made from their runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from virnucpro.errors import InputError, LockedError, UsageError
from virnucpro.layout import SamplesFolder
from virnucpro.report.writing import write_overview
from virnucpro.results import PredictionRun, open_runs
from virnucpro.run.sample_list import ListedSample, runs_of_samples, samples_of
from virnucpro.store.disk import Disk, is_own_file
from virnucpro.store.lock import locked
from virnucpro.tables import SAMPLES


def is_own_table(path: Path) -> bool:
    """Return whether a file is a table of samples, and no link to one."""
    header = SAMPLES.header.encode()
    return is_own_file(path) and path.read_bytes().startswith(header)


def write_table(folder: SamplesFolder, disk: Disk, named: Mapping[str, ListedSample]) -> None:
    """Write the table of all samples in an output directory, unless it is there already.

    A sample with finished runs has what they say. ``named`` says what became of the samples of a
    command; the others without results keep the row that they have.
    """
    disk.sweep(folder.root, {folder.summary_table.name, folder.overview.name})
    lines = [SAMPLES.header]
    for name, sample in samples_of(folder.root, named).items():
        runs: list[PredictionRun | None] = [None]
        with suppress(UsageError):  # it has no results
            runs = [*open_runs(folder.sample(name))]
        for run in runs:
            try:
                lines.append(_line(name, sample, run))
            except InputError as error:
                lines.append(_line(name, sample._replace(message=str(error)), None))
    text = "".join(lines).encode("utf-8", "backslashreplace")  # file names may be no text
    if not folder.summary_table.exists() or folder.summary_table.read_bytes() != text:
        disk.save(folder.summary_table, text)


def _line(name: str, sample: ListedSample, run: PredictionRun | None) -> str:
    """Return the row of a finished run, or of a sample without one."""
    summary = run.summary if run else None
    calls = summary.calls if summary else {}
    state = "failed" if sample.state == "failed" else "unfinished"
    if summary:
        state = "partial" if summary.failures else "finished"
    return SAMPLES.line(
        sample=name,
        file=" ".join(str(run.record["input"]["path"] if run else sample.file).split()),
        state=state,
        records=summary and summary.records,
        virus=summary and calls.get("virus", 0),
        nonvirus=summary and calls.get("nonvirus", 0),
        undecided=summary and calls.get("undecided", 0),
        unscored=summary and summary.records - summary.scored,
        seconds=summary and summary.seconds,
        message=None if run else " ".join(sample.message.split()) or None,
    )


def renew_samples(root: Path, notify: Callable[[str], None]) -> None:
    """Write the table and the overview of all samples in an output directory, if it has samples.

    ``notify`` gets a sentence where they cannot be written now.

    Raises:
        OutputError: a file cannot be written.
    """
    folder = SamplesFolder(root)
    if not samples_of(root):
        return
    try:
        with locked(folder.lock, "these samples"):
            if folder.summary_table.exists() and not is_own_table(folder.summary_table):
                raise UsageError(f"{folder.summary_table} is not a table of samples")
            write_table(folder, Disk(), {})
            problem = overview_problem(folder)
    except (LockedError, UsageError) as error:
        problem = f"{folder.summary_table} is not up to date: {error}"
    if problem:
        notify(problem)


def overview_problem(folder: SamplesFolder) -> str:
    """Write the overview of all samples with results; return what was in the way, if anything.

    Raises:
        OutputError: it cannot be written.
    """
    try:
        if runs := runs_of_samples(folder.root):
            write_overview(folder.overview, runs, Disk())
    except (InputError, UsageError) as error:
        return f"no overview was written: {error}"
    return ""
