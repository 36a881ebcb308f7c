"""What several inputs have in common after ``virnucpro call``: their table and their overview."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from virnucpro.errors import InputError, LockedError, UsageError
from virnucpro.layout import SamplesFolder
from virnucpro.report.writing import refuse_other_file, text_of, write_overview
from virnucpro.results import open_runs
from virnucpro.run.sample_list import read_names, runs_of_samples
from virnucpro.stages.results import OutputFigures
from virnucpro.store.disk import Disk
from virnucpro.store.lock import locked
from virnucpro.tables import SAMPLES

CALLS = ("virus", "nonvirus", "undecided")  # the columns that other cuts change


def folders_of_runs(folder: Path, notify: Callable[[str], None]) -> list[Path]:
    """Return the folder itself, or those of the samples in it that have results.

    The folder comes after its samples where it also has finished runs of single inputs.
    """
    names = read_names(folder)
    if names is None:
        return [folder.absolute()]
    found = []
    for name, *_ in names:
        sample = SamplesFolder(folder.absolute()).sample(name)
        try:
            open_runs(sample)
        except UsageError:
            notify(f"{name} has no results, and is left out")
        else:
            found.append(sample)
    with suppress(UsageError):  # only samples
        open_runs(folder)
        found.append(folder.absolute())
    return found


def renew_samples(
    called: Sequence[tuple[Path, OutputFigures]], notify: Callable[[str], None]
) -> None:
    """Put the counts of runs, by their folders, where several inputs have a table and an overview.

    Nothing is done for a run that stands alone. ``notify`` gets a sentence where the table cannot
    be written now.

    Raises:
        OutputError: a file cannot be written.
    """
    samples: dict[Path, dict[str, OutputFigures]] = defaultdict(dict)
    for parent, runs in groupby(called, key=lambda run: run[0].parent):
        names = {name for name, *_ in read_names(parent) or ()}
        for root, figures in runs:
            if root.name in names:
                samples[parent][root.name] = figures
    for parent, figures_of in samples.items():
        folder = SamplesFolder(parent)
        try:
            with locked(folder.lock, "these samples"):
                refuse_other_file(folder.overview, text_of(folder.overview))
                _renew_table(folder, figures_of)
                write_overview(folder.overview, runs_of_samples(folder.root), Disk())
        except (LockedError, UsageError, InputError) as error:
            notify(f"{folder.summary_table} and the overview keep the counts of before: {error}")


def _renew_table(folder: SamplesFolder, figures_of: Mapping[str, OutputFigures]) -> None:
    path = folder.summary_table
    text = path.read_bytes().decode("utf-8", "surrogateescape") if path.is_file() else ""
    if path.is_symlink() or not text.startswith(SAMPLES.header):
        raise UsageError(f"{path} is not a table of samples")
    rows = []
    for line in text.removeprefix(SAMPLES.header).split("\n"):
        row = dict(zip(SAMPLES.names, line.split("\t"), strict=False))
        if figures := figures_of.get(row["sample"]):
            row |= {call: str(figures.calls.get(call, 0)) for call in CALLS}
        rows.append("\t".join(row.values()))
    Disk().save(path, (SAMPLES.header + "\n".join(rows)).encode("utf-8", "surrogateescape"))
