"""The table that says which genomes are viral. A row is for a file, or for a part of one.

::

    file                 label     group     split     genome         taxon             match
    viral.1.gbff.gz      virus     RefSeq    auto      \\[([^]]*)\\]$
    bacteria.fa          others    bacteria  test=0.2                 ^\\S+ (\\w+)
    mixed.fa             virus     phages    test                                       phage

The table is tab-separated UTF-8. Blank lines and lines that begin with ``#`` are passed over.
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
OPTIONAL = ("split", "genome", "taxon", "match")
_LABELS: Mapping[str, Label] = {
    "virus": "virus",
    "viral": "virus",
    "1": "virus",
    "others": "others",
    "nonviral": "others",
    "0": "others",
}
_SHOWN_MISTAKES = 10


@dataclass(frozen=True, slots=True)
class SplitRule:
    """The parts that the genomes of a row go to.

    Attributes:
        part: the part that all of them go to; None leaves it to the hash of their names.
        test: the fraction of them that is held out if ``part`` is None; None means the fraction
            of the whole data set.
    """

    part: Part | None = None
    test: float | None = None


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row of the table.

    Attributes:
        line: its line number in the table, from 1.
        file: the path as the table writes it.
        path: the resolved path.
        label: ``virus`` or ``others``.
        group: the name under which results are reported.
        split: the parts that its genomes go to.
        genome: a pattern whose first group is the name of the genome in the header of a record;
            None makes every record a genome.
        taxon: a pattern whose first group is the name of the taxon (a genus, the genus of the
            host, a family) in the header of a record; None makes every genome its own taxon.
        match: a pattern; the row takes only records whose header contains it. None takes all.
    """

    line: int
    file: str
    path: Path
    label: Label
    group: str
    split: SplitRule
    genome: re.Pattern[str] | None
    taxon: re.Pattern[str] | None
    match: re.Pattern[str] | None

    def matches(self, header: str) -> bool:
        """Return whether the row may take the record with this header (without ``>``)."""
        return self.match is None or self.match.search(header) is not None

    def genome_name(self, name: str, header: str) -> str | None:
        """Return the genome of a record with the unique name ``name``.

        None means that the pattern finds no name in the header.
        """
        return name if self.genome is None else _first_group(self.genome, header)

    def taxon_name(self, genome: str, header: str) -> str | None:
        """Return the taxon of a record of ``genome``.

        None means that the pattern finds no name in the header.
        """
        return genome if self.taxon is None else _first_group(self.taxon, header)

    def identity(self) -> list[str]:
        """Return what decides about the data set: all fields but the folder of the file."""
        split = self.split.part or ("auto" if self.split.test is None else f"{self.split.test}")
        patterns = [pattern.pattern if pattern else "" for pattern in (self.genome, self.match)]
        if self.taxon:  # without one, the identity is that of a table without this column
            patterns.append(self.taxon.pattern)
        return [self.file, self.label, self.group, split, *patterns]


def _first_group(pattern: re.Pattern[str], header: str) -> str | None:
    """Return what the first group of ``pattern`` finds, with single blanks; None for nothing."""
    match = pattern.search(header)
    return " ".join((match[1] or "").split()) or None if match else None


class _RowError(Exception):
    """Says what is wrong with a line of the table."""


def read_genome_table(path: Path, folder: Path) -> tuple[SourceRow, ...]:
    """Return the rows of the table ``path``. Relative paths in it start from ``folder``.

    Raises:
        UsageError: the table cannot be read.
        InputError: it has mistakes; the message names the lines of the first ten.
    """
    lines = _read_lines(path)
    header = next(lines, None)
    if header is None:
        raise InputError(f"{path} is empty: write a header ({' '.join(REQUIRED)}) and rows")
    try:
        columns = _check_columns([name.strip() for name in header[1]])
    except _RowError as error:
        raise InputError(f"{path}: line {header[0]}: {error}") from None
    rows: list[SourceRow] = []
    mistakes: list[str] = []
    for line, fields in lines:
        try:
            rows.append(_parse_row(line, columns, fields, folder))
        except _RowError as error:
            mistakes.append(f"line {line}: {error}")
    if len(mistakes) == 1:
        raise InputError(f"{path}: {mistakes[0]}")
    if mistakes:
        shown = mistakes[:_SHOWN_MISTAKES]
        if len(mistakes) > _SHOWN_MISTAKES:
            shown.append(f"and {len(mistakes) - _SHOWN_MISTAKES} more")
        raise InputError("\n  ".join([f"{path} has mistakes:", *shown]))
    if not rows:
        raise InputError(f"{path} has a header but no rows: add one for each file")
    return tuple(rows)


def _read_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of the lines that are neither blank nor a comment."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"table {path} cannot be read ({error.strerror}): check its path"
        ) from error
    except UnicodeDecodeError:
        raise InputError(
            f"{path} is not UTF-8 text: save the table as UTF-8, not as .xlsx"
        ) from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            yield number, line.rstrip("\r").split("\t")


def _check_columns(names: list[str]) -> list[str]:
    known = (*REQUIRED, *OPTIONAL)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise _RowError(
                f"there is no column {shortened(name)!r}; {hint} (tabs between columns)"
            )
        if names.count(name) > 1:
            raise _RowError(f"the column {name} is there twice")
    if missing := [name for name in REQUIRED if name not in names]:
        raise _RowError(f"column {', '.join(missing)} is missing (tabs between columns)")
    return names


def _parse_row(line: int, columns: list[str], fields: list[str], folder: Path) -> SourceRow:
    if any(field.strip() for field in fields[len(columns) :]):
        raise _RowError(f"{len(fields)} fields, but the header has {len(columns)}")
    values = dict.fromkeys((*REQUIRED, *OPTIONAL), "")
    for name, field in zip(columns, fields, strict=False):
        # A blank may be part of a pattern. Everywhere else it is a slip.
        is_pattern = name in ("genome", "taxon", "match")
        values[name] = field if is_pattern and field.strip() else field.strip()
    for name in REQUIRED:
        if not values[name]:
            raise _RowError(f"{name} is empty (tabs between columns)")
    label = _LABELS.get(values["label"].lower())
    if label is None:
        raise _RowError(f"label {shortened(values['label'])!r} is neither virus (1) nor others (0)")
    path = (folder / values["file"]).resolve()
    if not path.is_file():
        problem = "is a folder: name a file" if path.is_dir() else f"not found: {path} is not there"
        raise _RowError(f"file {shortened(values['file'])} {problem} (see --genomes)")
    return SourceRow(
        line,
        values["file"],
        path,
        label,
        values["group"],
        _parse_split(values["split"]),
        _parse_name_pattern("genome", values["genome"]),
        _parse_name_pattern("taxon", values["taxon"]),
        _parse_pattern("match", values["match"]),
    )


def _parse_pattern(column: str, text: str) -> re.Pattern[str] | None:
    if not text:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise _RowError(
            f"{column} {shortened(text)!r} is not a regular expression: {error}"
        ) from None


def _parse_name_pattern(column: str, text: str) -> re.Pattern[str] | None:
    pattern = _parse_pattern(column, text)
    if pattern is not None and not pattern.groups:
        raise _RowError(
            f"{column} {shortened(text)!r} has no group: put the name in parentheses, as in "
            f"^(\\w+)_frag"
        )
    return pattern


def _parse_split(text: str) -> SplitRule:
    if text in ("", "auto"):
        return SplitRule()
    for part in PARTS:
        if text == part:
            return SplitRule(part)
    name, _, fraction = text.partition("=")
    try:
        test = float(fraction)
    except ValueError:
        test = -1.0
    if name.strip() != "test" or not 0 <= test <= 1:
        raise _RowError(
            f"split {shortened(text)!r} is none of auto, train, validation, test, test=0.2"
        )
    return SplitRule(test=test)
