"""The table that says which genomes are viral: one row a file, or a part of one.

::

    file                 label     group     split      genome           match
    viral.1.gbff.gz      virus     RefSeq    auto       \\[([^]]*)\\]$
    bacteria.fa          others    bacteria  test=0.2
    mixed.fa             virus     phages    test                        phage

Tab-separated, UTF-8; blank lines and lines that begin with ``#`` are passed over.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from virnucpro.errors import InputError, UsageError
from virnucpro.io.text import shortened
from virnucpro.training.data.dataset import PARTS, Label, Part

REQUIRED = ("file", "label", "group")
OPTIONAL = ("split", "genome", "match")
_LABELS: Mapping[str, Label] = {
    "virus": "virus",
    "viral": "virus",
    "1": "virus",
    "others": "others",
    "nonviral": "others",
    "0": "others",
}
_LISTED = 10  # mistakes that a message names


@dataclass(frozen=True, slots=True)
class Split:
    """Where the genomes of a row go.

    Attributes:
        part: all of them to this part; None leaves it to the hash of their names.
        test: fraction of them that is held out, where ``part`` is None; None is the fraction
            that holds for the whole data set.
    """

    part: Part | None = None
    test: float | None = None


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row of the table.

    Attributes:
        line: its number in the file, from 1.
        file: the path as it is written there.
        path: the file itself.
        label: ``virus`` or ``others``.
        group: name under which results are reported.
        split: where its genomes go.
        genome: finds the genome's name in a record's header, as its first group; None makes
            every record a genome.
        match: the row takes only records whose header it finds something in; None takes all.
    """

    line: int
    file: str
    path: Path
    label: Label
    group: str
    split: Split
    genome: re.Pattern[str] | None
    match: re.Pattern[str] | None

    def takes(self, header: str) -> bool:
        """Whether the row is for the record with this header (without ``>``)."""
        return self.match is None or self.match.search(header) is not None

    def genome_of(self, name: str, header: str) -> str | None:
        """Genome of the record ``name``, which is unique; None where the pattern finds none."""
        if self.genome is None:
            return name
        found = self.genome.search(header)
        name = " ".join((found[1] or "").split()) if found else ""
        return name or None

    def said(self) -> list[str]:
        """What of the row decides about the data set: everything but where the file lies."""
        split = self.split.part or ("auto" if self.split.test is None else f"{self.split.test}")
        patterns = [p.pattern if p else "" for p in (self.genome, self.match)]
        return [self.file, self.label, self.group, split, *patterns]


class _Mistake(Exception):
    """What is wrong with a line."""


def read_table(path: Path, folder: Path) -> tuple[SourceRow, ...]:
    """The rows of the table ``path``; relative paths in it start from ``folder``.

    Raises:
        UsageError: the table cannot be read.
        InputError: it has mistakes; the message names the lines of the first ten.
    """
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise InputError(f"{path} is empty: write a header ({' '.join(REQUIRED)}) and rows")
    rows: list[SourceRow] = []
    mistakes: list[str] = []
    try:
        columns = _columns([name.strip() for name in first[1]])
    except _Mistake as mistake:
        raise InputError(f"{path}: line {first[0]}: {mistake}") from None
    for number, fields in lines:
        try:
            rows.append(_row(number, columns, fields, folder))
        except _Mistake as mistake:
            mistakes.append(f"line {number}: {mistake}")
    if mistakes:
        more = len(mistakes) - _LISTED
        shown = [*mistakes[:_LISTED], *([f"and {more} more"] if more > 0 else [])]
        raise InputError(f"{path}: {shown[0]}" if len(shown) == 1 else _listed(path, shown))
    if not rows:
        raise InputError(f"{path} has a header but no rows: add one for each file")
    return tuple(rows)


def _listed(path: Path, shown: list[str]) -> str:
    return "\n  ".join([f"{path} has mistakes:", *shown])


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(number, fields) of the lines that say something."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"table {path} cannot be read ({error.strerror}): check its path"
        ) from error
    except UnicodeDecodeError:
        raise InputError(f"{path} is no UTF-8 text: save the table as UTF-8, not as .xlsx") from (
            None
        )
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            yield number, line.rstrip("\r").split("\t")


def _columns(fields: list[str]) -> list[str]:
    known = (*REQUIRED, *OPTIONAL)
    for name in fields:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise _Mistake(f"there is no column {shortened(name)!r}; {hint} (tabs between columns)")
        if fields.count(name) > 1:
            raise _Mistake(f"the column {name} is there twice")
    if missing := [name for name in REQUIRED if name not in fields]:
        raise _Mistake(f"column {', '.join(missing)} is missing (tabs between columns)")
    return fields


def _row(number: int, columns: list[str], fields: list[str], folder: Path) -> SourceRow:
    if any(field.strip() for field in fields[len(columns) :]):
        raise _Mistake(f"{len(fields)} fields, but the header has {len(columns)}")
    said = dict.fromkeys((*REQUIRED, *OPTIONAL), "")
    for name, field in zip(columns, fields, strict=False):
        # A blank may be part of a pattern; everywhere else it is a slip.
        said[name] = field if name in ("genome", "match") and field.strip() else field.strip()
    for name in REQUIRED:
        if not said[name]:
            raise _Mistake(f"{name} is empty (tabs between columns)")
    if said["label"].lower() not in _LABELS:
        raise _Mistake(f"label {shortened(said['label'])!r} is neither virus (1) nor others (0)")
    path = (folder / said["file"]).resolve()
    if not path.is_file():
        what = "is a folder: name a file" if path.is_dir() else f"not found: {path} is not there"
        raise _Mistake(f"file {shortened(said['file'])} {what} (see --genomes)")
    genome = _pattern("genome", said["genome"])
    if genome is not None and not genome.groups:
        raise _Mistake(
            f"genome {shortened(said['genome'])!r} has no group: put the name in parentheses, "
            f"as in ^(\\w+)_frag"
        )
    return SourceRow(
        number,
        said["file"],
        path,
        _LABELS[said["label"].lower()],
        said["group"],
        _split(said["split"]),
        genome,
        _pattern("match", said["match"]),
    )


def _pattern(column: str, text: str) -> re.Pattern[str] | None:
    if not text:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise _Mistake(f"{column} {shortened(text)!r} is no regular expression: {error}") from None


def _split(text: str) -> Split:
    if text in ("", "auto"):
        return Split()
    for part in PARTS:
        if text == part:
            return Split(part)
    name, _, fraction = text.partition("=")
    try:
        value = float(fraction)
    except ValueError:
        value = -1.0
    if name.strip() != "test" or not 0 <= value <= 1:
        raise _Mistake(
            f"split {shortened(text)!r} is none of auto, train, validation, test, test=0.2"
        )
    return Split(test=value)
