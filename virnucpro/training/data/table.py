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
from dataclasses import dataclass
from pathlib import Path

from virnucpro.errors import InputError, UsageError
from virnucpro.io.text import shortened
from virnucpro.training.data.dataset import PARTS, Label, Part

REQUIRED = ("file", "label", "group")
PATTERNS = ("genome", "taxon", "match")
COLUMNS = (*REQUIRED, "split", *PATTERNS)
LABEL_WORDS: Mapping[str, Label] = {
    "virus": "virus",
    "viral": "virus",
    "1": "virus",
    "others": "others",
    "nonviral": "others",
    "nonvirus": "others",
    "0": "others",
}


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A row of the table, with its line number and the resolved path of its file.

    Attributes:
        part: the part that all of its genomes go to; None leaves it to the hash of their names.
        test: the fraction of them that is held out if ``part`` is None; None means the fraction
            of the whole data set.
        genome, taxon: patterns whose first group is the name in the header of a record; None
            makes every record a genome, and every genome its own taxon.
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

    def names(self, name: str, header: str) -> tuple[str, str]:
        """Return genome and taxon of the record ``name``; empty where a pattern finds no name."""

        def first_group(pattern: re.Pattern[str]) -> str:
            match = pattern.search(header)
            return " ".join((match[1] or "").split()) if match else ""

        genome = first_group(self.genome) if self.genome else name
        return genome, first_group(self.taxon) if self.taxon else genome

    def identity(self) -> list[str]:
        """Return what decides about the data set: all fields but the folder of the file."""
        split = self.part or ("auto" if self.test is None else f"{self.test}")
        patterns = [p.pattern if p else "" for p in (self.genome, self.match, self.taxon)]
        return [self.file, self.label, self.group, split, *patterns]


def read_genome_table(path: Path, folder: Path) -> list[SourceRow]:
    """Read the table ``path``; relative paths of genome files start from ``folder``."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): check its path") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text: save the table as UTF-8") from None
    rows: list[SourceRow] = []
    columns: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split("\t")
        try:
            if columns:
                rows.append(_row(number, columns, fields, folder))
                continue
            columns = [name.strip() for name in fields]
            if not set(REQUIRED) <= set(columns) <= set(COLUMNS) or len({*columns}) < len(columns):
                raise ValueError(f"the columns are not {', '.join(COLUMNS)}, between tabs")
        except (ValueError, re.error) as error:
            raise InputError(f"{path}: line {number}: {error}") from None
    if not rows:
        raise InputError(f"{path} needs a header ({' '.join(REQUIRED)}) and a row for each file")
    return rows


def _row(line: int, columns: list[str], fields: list[str], folder: Path) -> SourceRow:
    """Return a row, or raise ValueError or re.error."""
    if any(field.strip() for field in fields[len(columns) :]):
        raise ValueError(f"{len(fields)} fields, but the header has {len(columns)}")
    # A blank may be part of a pattern. Everywhere else it is a slip.
    cells = zip(columns, fields, strict=False)
    values = {name: f if name in PATTERNS and f.strip() else f.strip() for name, f in cells}
    if missing := [name for name in REQUIRED if not values.get(name)]:
        raise ValueError(f"{missing[0]} is empty (tabs between columns)")
    label = LABEL_WORDS.get(values["label"].lower())
    if label is None:
        raise ValueError(f"label {shortened(values['label'])!r} is neither virus nor others")
    path = (folder / values["file"]).resolve()
    if not path.is_file():
        raise ValueError(f"file {shortened(values['file'])} not found: {path} (see --genomes)")
    patterns = [re.compile(text) if (text := values.get(name)) else None for name in PATTERNS]
    if any(pattern and not pattern.groups for pattern in patterns[:2]):
        raise ValueError("genome or taxon has no group: put the name in parentheses: ^(\\w+)_frag")
    split = values.get("split", "")
    part = next((part for part in PARTS if part == split), None)
    fraction = re.fullmatch(r"test\s*=\s*(0|1|[01]\.0*|0?\.\d+)", split)
    if not part and not fraction and split not in ("", "auto"):
        raise ValueError(f"split {shortened(split)!r} is not auto, a part, or like test=0.2")
    test = float(fraction[1]) if fraction else None
    return SourceRow(line, values["file"], path, label, values["group"], part, test, *patterns)
