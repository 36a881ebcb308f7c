"""The samples of a command with several inputs: their names and files, and those of a folder."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from virnucpro.columns import MISSING
from virnucpro.errors import InputError, UsageError
from virnucpro.formatting import printable
from virnucpro.layout import STDIN, SamplesFolder, stem_of
from virnucpro.results import PredictionRun, open_runs
from virnucpro.tables import SAMPLES

COLUMNS = ["name", "file"]
MATES = "input2"  # a third column, with the second mates of paired reads
LONGEST_NAME = 200  # bytes; files of the run have longer names than the folder
_PATTERN = "*?["
_FIRST_MATES = re.compile(r"(?<=[._])(R?)1(?=$|[._])")  # as sequencers and archives name files
_FASTQ = re.compile(r"\.(fq|fastq)(\.|$)", re.IGNORECASE)
_STDIN_AMONG_SEVERAL = "standard input cannot be one of several inputs: name files"


class NamedFile(NamedTuple):
    """The name of a sample, the path of its file, and that of second mates, if it has such."""

    name: str
    file: str
    mates: str | None = None


class ListedSample(NamedTuple):
    """A row of the table of samples: the file of a sample, and what became of it, and why."""

    file: str
    state: str = "unfinished"
    message: str = MISSING


def are_several(sources: Sequence[str]) -> bool:
    """Return whether inputs are samples with folders of their own: several, or a pattern."""
    return len(sources) > 1 or any(map(_is_pattern, sources))


def named_files(sources: Sequence[str]) -> list[NamedFile]:
    """Return the files of inputs and patterns such as ``reads/*.fq.gz``, each with its name.

    Raises:
        UsageError: a pattern matches nothing, a name cannot be a folder, or occurs twice.
    """
    files: list[str] = []
    for source in sources:
        if source == STDIN:
            raise UsageError(_STDIN_AMONG_SEVERAL)
        found = sorted(glob.glob(source)) if _is_pattern(source) else [source]  # noqa: PTH207
        if not found:
            raise UsageError(f"no file matches {source}: check the pattern")
        files += found
    named = [NamedFile(stem_of(file), file) for file in dict.fromkeys(files)]
    advice = "rename a file, or give names with --input-list"
    for problem in _problems(named):
        raise UsageError(f"{problem}; {advice}")
    return named


def mates_among(named: Iterable[NamedFile]) -> tuple[str, str] | None:
    """Return the names of two samples that look like mates of the same reads, or None.

    These are FASTQ files such as ``gut_R1.fq.gz`` and ``gut_R2.fq.gz``, or ``gut_1`` and ``gut_2``.
    """
    names = {row.file: row.name for row in named if row.mates is None and _FASTQ.search(row.file)}
    for file, name in names.items():
        for match in _FIRST_MATES.finditer(file):
            second = f"{file[: match.start()]}{match[1]}2{file[match.end() :]}"
            if second in names:
                return name, names[second]
    return None


def read_sample_list(path: Path) -> list[NamedFile]:
    """Return the rows of a tab-separated table with the columns ``name`` and ``file``.

    A third column ``input2``, which may be empty, names the second mates of paired reads.
    Blank lines and those that begin with ``#`` do not count. Files are relative to the current
    folder.

    Raises:
        UsageError: the table cannot be read.
        InputError: it has other columns, or a name that cannot be a folder or occurs twice.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"--input-list {path} cannot be read ({error.strerror}): check its path"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: save the table in this encoding") from error
    lines = [
        (number, [cell.strip() for cell in line.split("\t")])
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.startswith("#")
    ]
    header = lines[0][1] if lines else []
    if header not in (COLUMNS, [*COLUMNS, MATES]):
        raise InputError(
            f"{path}: the first line must be the columns name and file, separated by a tab; of "
            f"paired reads also {MATES}"
        )
    if len(lines) == 1:
        raise InputError(f"{path} names no sample: add a line for each")
    for number, cells in lines[1:]:
        if not len(COLUMNS) <= len(cells) <= len(header) or not all(cells[: len(COLUMNS)]):
            raise InputError(f"{path}: line {number}: expected a name, a tab and a file")
        if STDIN in cells[1:]:
            raise InputError(f"{path}: line {number}: {_STDIN_AMONG_SEVERAL}")
    named = [NamedFile(name, file, *filter(None, rest)) for _, (name, file, *rest) in lines[1:]]
    for problem in _problems(named):
        raise InputError(f"{path}: {problem}")
    return named


def samples_of(
    root: Path, named: Mapping[str, ListedSample] | None = None
) -> dict[str, ListedSample]:
    """Return the samples of an output directory by their names; none where it has a single input.

    These are the rows of its table, then those that a command has ``named``, and every other folder
    with a run.
    """
    folder = SamplesFolder(root)
    samples = {}
    with suppress(OSError, ValueError, IndexError, InputError):
        for name, *row in SAMPLES.read(folder.summary_table, "sample", "file", "state", "message"):
            sample = ListedSample(*row)
            has_results = sample.state in ("finished", "partial")
            if _can_be_folder(name) and (folder.sample(name).is_dir() or not has_results):
                samples[name] = sample
    samples |= named or {}
    if folder.lock.exists():
        for path in sorted(root.glob("*/.checkpoints/runs/*/")):
            samples.setdefault(path.parents[2].name, ListedSample(MISSING))
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

    Raises:
        UsageError: there is none.
    """
    of_samples = runs_of_samples(root)
    root = root.absolute()
    is_sample = SamplesFolder(root.parent).lock.exists()
    try:
        single = open_runs(root)
    except UsageError:
        if not of_samples:
            raise
        return of_samples
    return of_samples + [(root.name if is_sample else run.stem, run) for run in single]


def folders_of_runs(folder: Path, notify: Callable[[str], None]) -> list[Path]:
    """Return the folders with finished runs: those of samples, and then the folder itself.

    ``notify`` gets a sentence for each sample without one.
    """
    root, found = folder.absolute(), [folder.absolute()]
    with suppress(UsageError):
        found = list(dict.fromkeys(run.folder for _, run in finished_runs(root)))
    for name in samples_of(root):
        if root / name not in found:
            notify(f"{name} has no results, and is left out")
    return found


def _is_pattern(source: str) -> bool:
    return any(letter in source for letter in _PATTERN) and not Path(source).exists()


def _can_be_folder(name: str) -> bool:
    return name.isprintable() and "/" not in name and name[:1] not in ("", ".", "-")


def _problems(named: Iterable[NamedFile]) -> Iterable[str]:
    """Yield what is wrong with the names: each becomes a folder."""
    folder = SamplesFolder(Path())
    seen = {folder.summary_table.name: "the summary table", folder.overview.name: "the overview"}
    for name, file, _ in named:
        if not _can_be_folder(name):
            yield f"{printable(file)}: {printable(name)!r} cannot be the name of a folder"
        elif len(os.fsencode(name)) > LONGEST_NAME:
            yield f"{printable(file)}: its name is longer than {LONGEST_NAME} bytes"
        elif (other := seen.get(name.casefold())) == file:
            yield f"{printable(file)} is listed twice with the name {name}"
        elif other is not None:
            yield f"{printable(file)} and {printable(other)} have the same name {name}"
        seen.setdefault(name.casefold(), file)
