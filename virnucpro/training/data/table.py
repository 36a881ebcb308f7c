"""The table that says which genomes are viral. A row is for a file, or for a part of one.

::

    file                 label     group     split     genome         taxon             match
    viral.1.gbff.gz      virus     RefSeq    auto      \\[([^]]*)\\]$
    bacteria.fa          others    bacteria  test=0.2                 ^\\S+ (\\w+)
    mixed.fa             virus     phages    test                                       phage

The table is tab-separated UTF-8. Blank lines and lines that begin with ``#`` are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
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


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row of the table.

    Attributes:
        line: its line number in the table, from 1.
        file: the path as the table writes it.
        path: the resolved path.
        label: ``virus`` or ``others``.
        group: the name under which results are reported.
        part: the part that all of its genomes go to; None leaves it to the hash of their names.
        test: the fraction of them that is held out if ``part`` is None; None means the fraction
            of the whole data set.
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
    part: Part | None
    test: float | None
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
        split = self.part or ("auto" if self.test is None else f"{self.test}")
        patterns = [pattern.pattern if pattern else "" for pattern in (self.genome, self.match)]
        if self.taxon:  # without one, the identity is that of a table without this column
            patterns.append(self.taxon.pattern)
        return [self.file, self.label, self.group, split, *patterns]


def _first_group(pattern: re.Pattern[str], header: str) -> str | None:
    """Return what the first group of ``pattern`` finds, with single blanks; None for nothing."""
    match = pattern.search(header)
    return " ".join((match[1] or "").split()) or None if match else None


def read_genome_table(path: Path, folder: Path) -> tuple[SourceRow, ...]:
    """Return the rows of the table ``path``. Relative paths in it start from ``folder``.

    Raises:
        UsageError: the table cannot be read.
        InputError: it has a mistake; the message names the line.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"table {path} cannot be read ({error.strerror}): check its path"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text: save the table as UTF-8") from None
    columns: list[str] = []
    rows: list[SourceRow] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.rstrip("\r").split("\t")
        try:
            if columns:
                rows.append(_parse_row(number, columns, fields, folder))
            else:
                columns = _checked_columns([name.strip() for name in fields])
        except ValueError as error:
            raise InputError(f"{path}: line {number}: {error}") from None
    if not rows:
        raise InputError(f"{path} needs a header ({' '.join(REQUIRED)}) and a row for each file")
    return tuple(rows)


def _checked_columns(names: list[str]) -> list[str]:
    """Return the columns, or raise ValueError."""
    known = (*REQUIRED, *OPTIONAL)
    if not set(REQUIRED) <= set(names) <= set(known) or len(set(names)) < len(names):
        raise ValueError(
            f"the columns are {', '.join(map(shortened, names))}, expected {', '.join(REQUIRED)} "
            f"and any of {', '.join(OPTIONAL)}, each once, with tabs between them"
        )
    return names


def _parse_row(line: int, columns: list[str], fields: list[str], folder: Path) -> SourceRow:
    """Return a row, or raise ValueError."""
    if any(field.strip() for field in fields[len(columns) :]):
        raise ValueError(f"{len(fields)} fields, but the header has {len(columns)}")
    values = dict.fromkeys((*REQUIRED, *OPTIONAL), "")
    for name, field in zip(columns, fields, strict=False):
        # A blank may be part of a pattern. Everywhere else it is a slip.
        is_pattern = name in ("genome", "taxon", "match")
        values[name] = field if is_pattern and field.strip() else field.strip()
    for name in REQUIRED:
        if not values[name]:
            raise ValueError(f"{name} is empty (tabs between columns)")
    label = _LABELS.get(values["label"].lower())
    if label is None:
        raise ValueError(
            f"label {shortened(values['label'])!r} is neither virus (1) nor others (0)"
        )
    path = (folder / values["file"]).resolve()
    if not path.is_file():
        raise ValueError(f"file {shortened(values['file'])} not found: {path} (see --genomes)")
    return SourceRow(
        line,
        values["file"],
        path,
        label,
        values["group"],
        *_parse_split(values["split"]),
        *(_parse_pattern(name, values[name]) for name in ("genome", "taxon", "match")),
    )


def _parse_pattern(column: str, text: str) -> re.Pattern[str] | None:
    """Return a pattern, which names a genome or a taxon in its first group; None for no text."""
    if not text:
        return None
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ValueError(
            f"{column} {shortened(text)!r} is not a regular expression: {error}"
        ) from None
    if column != "match" and not pattern.groups:
        raise ValueError(
            f"{column} {shortened(text)!r} has no group: put the name in parentheses, as in "
            f"^(\\w+)_frag"
        )
    return pattern


def _parse_split(text: str) -> tuple[Part | None, float | None]:
    """Return the part, or the fraction of the test part."""
    if text in ("", "auto"):
        return None, None
    for part in PARTS:
        if text == part:
            return part, None
    name, _, fraction = text.partition("=")
    with suppress(ValueError):
        if name.strip() == "test" and 0 <= float(fraction) <= 1:
            return None, float(fraction)
    raise ValueError(
        f"split {shortened(text)!r} is none of auto, train, validation, test, test=0.2"
    )
