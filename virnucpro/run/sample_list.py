"""The samples of a command with several inputs: their names and files, their table and overview."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from virnucpro.columns import MISSING, row_error, table_rows
from virnucpro.contracts import Json
from virnucpro.errors import (
    InputError,
    LockedError,
    ResumeRefusedError,
    UsageError,
    VirNucProError,
)
from virnucpro.layout import STDIN, Layout, SamplesFolder, stem_of
from virnucpro.results import PredictionRun, open_runs
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import has_receipts
from virnucpro.store.lock import locked
from virnucpro.tables import SAMPLES

if TYPE_CHECKING:
    from virnucpro.run.predict import Outcome

CALLS = ("virus", "nonvirus", "undecided")
LONGEST_NAME = 200  # bytes; files of the run have longer names than the folder
_FIRST_MATES = re.compile(r"(.*[._]R?)1(?=[._])")  # as sequencers and archives name files
_FASTQ = re.compile(r"\.(fq|fastq)(\.|$)", re.IGNORECASE)


@dataclass
class Sample:
    """The name of a sample, the path of its file, and that of second mates, if it has such.

    ``state`` says what became of it, as in its table; ``message`` why it has no results.
    """

    name: str
    file: str
    mates: str | None = None
    state: str = "unfinished"
    message: str = MISSING
    outcome: Outcome | None = None
    error: VirNucProError | None = None


def named_files(sources: Sequence[str]) -> list[Sample]:
    """Return several inputs as samples, named after the files; those of one name, the folders."""
    files = {file: stem_of(file) for file in sources}
    counts = Counter(stem.casefold() for stem in files.values())
    samples = [
        Sample(Path(file).absolute().parent.name if counts[stem.casefold()] > 1 else stem, file)
        for file, stem in files.items()
    ]
    if problem := _problem(samples):
        raise UsageError(f"{problem}; rename a file, or give names with --input-list")
    return samples


def mates_among(samples: Iterable[Sample]) -> tuple[str, str] | None:
    """Return the names of two samples that look like mates of the same reads, or None.

    These are FASTQ files such as ``gut_R1.fq.gz`` and ``gut_R2.fq.gz``, or ``gut_1`` and ``gut_2``.
    """
    names = {row.file: row.name for row in samples if row.mates is None and _FASTQ.search(row.file)}
    for file, name in names.items():
        second = _FIRST_MATES.sub(r"\g<1>2", file)
        if second != file and second in names:
            return name, names[second]
    return None


def read_sample_list(path: Path) -> list[Sample]:
    """Return the rows of a tab-separated table with the columns ``name`` and ``file``.

    A column ``input2``, whose cells may be empty, names the second mates of paired reads. Other
    columns do not count. Files are relative to the current folder.
    """
    samples = []
    for number, cells in table_rows(path, "name", "file", optional=["input2"]):
        name, file, mates = (cell.strip() for cell in cells)
        if not name or not file:
            raise row_error(path, number, "expected a name, a tab and a file")
        samples.append(Sample(name, file, mates or None))
    if not samples:
        raise InputError(f"{path} names no sample: add a line for each")
    if problem := _problem(samples):
        raise InputError(f"{path}: {problem}")
    return samples


def _can_be_folder(name: str) -> bool:
    fits = len(os.fsencode(name)) <= LONGEST_NAME
    return fits and name.isprintable() and "/" not in name and name[:1] not in ("", ".", "-")


def _problem(samples: Iterable[Sample]) -> str:
    """Return what is wrong with a sample, if anything; its name becomes a folder."""
    folder = SamplesFolder(Path())
    taken = {folder.summary_table.name, folder.overview.name}
    for sample in samples:
        name, file = sample.name, sample.file
        if STDIN in (sample.file, sample.mates):
            return "standard input cannot be one of several inputs: name files"
        if not _can_be_folder(name):
            return f"{file}: {name!r} cannot be the name of a folder"
        if name.casefold() in taken:
            return f"{file}: the name {name} is taken"
        taken.add(name.casefold())
    return ""


# --- the samples of an output directory


def refuse_other_file(layout: Layout) -> None:
    """Refuse a sample that has not begun and in whose folder the run of another file has.

    Raises:
        ResumeRefusedError: there is such a run (exit 3).
    """
    if has_receipts(layout):
        return
    for path in sorted(layout.runs.glob("*")):
        if has_receipts(Layout(layout.root, path.name)):
            raise ResumeRefusedError(
                f"{layout.root} holds the run of {path.name}, not of {layout.stem}: give the "
                f"sample another name, or choose another --output-dir"
            )


def samples_of(root: Path, named: Iterable[Sample] = ()) -> dict[str, Sample]:
    """Return the samples of an output directory by their names; none where it has a single input.

    These are the rows of its table, then those that a command has ``named``, and every other folder
    with a run.
    """
    folder = SamplesFolder(root)
    samples = {}
    with suppress(OSError, ValueError, IndexError, InputError):
        columns = ("sample", "file", "state", "message")
        for name, file, state, message in SAMPLES.read(folder.summary_table, *columns):
            has_results = state in ("finished", "partial")
            if _can_be_folder(name) and (folder.sample(name).is_dir() or not has_results):
                samples[name] = Sample(name, file, None, state, message)
    samples |= {sample.name: sample for sample in named}
    if folder.lock.exists():
        for path in sorted(root.glob("*/.checkpoints/runs/*/")):
            name = path.parents[2].name
            samples.setdefault(name, Sample(name, MISSING))
    return samples


def runs_of_samples(root: Path) -> list[tuple[str, PredictionRun]]:
    """Return the finished runs of the samples in an output directory, with their names."""
    runs = []
    for name in samples_of(root):
        with suppress(UsageError):  # a sample without results
            runs += [(name, run) for run in open_runs(SamplesFolder(root).sample(name))]
    return runs


def finished_runs(root: Path) -> list[tuple[str, PredictionRun]]:
    """Return the finished runs in an output directory with their names.

    These are the runs of samples, and then those of commands with a single input. The run in the
    folder of a sample has the name of the sample.
    """
    of_samples = runs_of_samples(root)
    try:
        single = open_runs(root)
    except UsageError:
        if not of_samples:
            raise
        return of_samples
    return of_samples + [(Layout(root, run.stem).sample, run) for run in single]


def write_table(folder: SamplesFolder, disk: Disk, named: Iterable[Sample] = ()) -> None:
    """Write the table of all samples in an output directory, unless it is there already.

    A sample with finished runs has what they say. The others keep the row that they have, but for
    the samples that a command has ``named``.
    """
    disk.sweep(folder.root, {folder.summary_table.name, folder.overview.name})
    lines = [SAMPLES.header]
    for sample in samples_of(folder.root, named).values():
        row = _row(folder, sample)
        texts = {name: " ".join(row[name].split()) for name in ("file", "message") if row[name]}
        lines.append(SAMPLES.line(**{**row, **texts}))
    text = "".join(lines).encode("utf-8", "backslashreplace")  # file names may be no text
    if not folder.summary_table.exists() or folder.summary_table.read_bytes() != text:
        disk.save(folder.summary_table, text)


def _row(folder: SamplesFolder, sample: Sample) -> dict[str, Json]:
    """Return what the finished run of a sample says, or that there is none.

    Of several runs in its folder, that of its file counts: the others are no samples.
    """
    row: dict[str, Json] = dict.fromkeys(SAMPLES.row._fields)
    state = "failed" if sample.state == "failed" else "unfinished"
    row |= {"sample": sample.name, "file": sample.file, "state": state, "message": sample.message}
    try:
        runs = open_runs(folder.sample(sample.name))
        run = max(runs, key=lambda run: run.stem == stem_of(sample.file))
        return {
            **row,
            "file": run.record["input"]["path"],
            "state": "partial" if run.summary.failures else "finished",
            "records": run.summary.records,
            **{name: run.summary.calls.get(name, 0) for name in CALLS},
            "unscored": run.summary.records - run.summary.scored,
            "seconds": run.summary.seconds,
            "regions": run.summary.regions,
            "region_bases": run.summary.region_bases,
            "message": None,
        }
    except UsageError:  # it has no results
        return row
    except InputError as error:
        return {**row, "message": str(error)}


def renew_samples(root: Path) -> str:
    """Write the table and the overview of all samples in an output directory, if it has samples.

    Returns what was in the way, if anything.
    """
    folder = SamplesFolder(root)
    if not samples_of(root):
        return ""
    try:
        disk = Disk()
        with locked(folder.lock, "these samples"):
            write_table(folder, disk)
            return overview_problem(folder, disk)
    except LockedError as error:
        return f"{folder.summary_table} is not up to date: {error}"


def overview_problem(folder: SamplesFolder, disk: Disk) -> str:
    """Write the overview, if any sample has results; return what was in the way, if anything."""
    from virnucpro.report.page import write_overview  # it imports numpy

    try:
        if runs := runs_of_samples(folder.root):
            samples = samples_of(folder.root).values()
            failed = [(each.name, each.message) for each in samples if each.state == "failed"]
            write_overview(folder.overview, runs, disk, failed)
    except InputError as error:
        return f"no overview was written: {error}"
    return ""
