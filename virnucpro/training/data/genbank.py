"""GenBank files: the sequence of each record, and the proteins that are annotated on it."""

from __future__ import annotations

import io
import warnings
from bisect import bisect_left
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from virnucpro.errors import InputError, UsageError
from virnucpro.io.compression import expanded_blocks
from virnucpro.io.letters import cleaned, complaint
from virnucpro.io.text import shortened

if TYPE_CHECKING:
    from Bio.SeqRecord import SeqRecord


class Coding:
    """The annotated proteins of a record, by where they lie."""

    def __init__(self, proteins: list[tuple[int, int, str]]) -> None:
        """``proteins``: first base (0-based), end and residues of each coding sequence."""
        self._proteins = sorted(proteins)
        self._starts = [start for start, _, _ in self._proteins]
        # Ends do not ascend with the starts; their running maximum does, and finds the first
        # protein that can reach a place.
        self._reach: list[int] = []
        for _, end, _ in self._proteins:
            self._reach.append(max(end, self._reach[-1] if self._reach else 0))

    def holds(self, protein: str, start: int, stop: int) -> bool:
        """Whether ``protein`` is part of one that overlaps the bases ``start:stop``."""
        first = bisect_left(self._reach, start + 1)
        last = bisect_left(self._starts, stop)
        return any(
            end > start and protein in residues for _, end, residues in self._proteins[first:last]
        )


def is_genbank(path: Path) -> bool:
    """Whether the file, expanded, begins as a GenBank file does.

    Raises:
        UsageError, InputError: as :func:`expanded_blocks`.
    """
    with closing(expanded_blocks(path)) as blocks:
        return next(blocks, b"").lstrip().startswith(b"LOCUS ")


def read_genbank(path: Path) -> Iterator[tuple[str, str, str, Coding]]:
    """Yield (id, header, sequence, annotated proteins) of the records of a GenBank file.

    The header is made of id, definition and ``[organism]``, so that patterns can find any of
    them. The sequence is empty where the file has none (a record that only refers to others).

    Raises:
        UsageError: Biopython is not installed, or the file cannot be read.
        InputError: the file is damaged, or a letter is no nucleotide.
    """
    try:
        from Bio import BiopythonParserWarning, SeqIO
    except ImportError as error:
        raise UsageError(
            f"{path} is a GenBank file, and Biopython, which reads it, is not installed: "
            f"pip install 'virnucpro[train]'"
        ) from error
    with closing(expanded_blocks(path)) as blocks:
        text = io.TextIOWrapper(io.BufferedReader(_Expanded(blocks)), "utf-8", errors="replace")
        records = SeqIO.parse(text, "genbank")  # type: ignore[no-untyped-call]
        number = 0
        while True:
            number += 1
            try:
                with warnings.catch_warnings():
                    # Oddities of single annotations; what matters here fails as an error.
                    warnings.simplefilter("ignore", BiopythonParserWarning)
                    record = next(records, None)
            except (ValueError, AssertionError, IndexError) as error:
                raise InputError(
                    f"{path}: record {number} is damaged ({error}); copy or download the file again"
                ) from error
            if record is None:
                return
            yield _described(record, path, number)


def _described(record: SeqRecord, path: Path, number: int) -> tuple[str, str, str, Coding]:
    name = str(record.id or "").split()
    if not name or name[0].startswith("<unknown"):
        raise InputError(f"{path}: record {number} has no VERSION or LOCUS name: give it one")
    organism = str(record.annotations.get("organism", ""))
    words = f"{name[0]} {record.description} [{organism}]"
    header = "".join(c if c.isprintable() else " " for c in words)
    sequence = _letters(record, path, name[0])
    return name[0], header, sequence, Coding(list(_proteins(record)) if sequence else [])


def _letters(record: SeqRecord, path: Path, name: str) -> str:
    from Bio.Seq import UndefinedSequenceError

    try:
        raw = bytes(record.seq)  # type: ignore[arg-type]
    except UndefinedSequenceError:
        return ""
    letters = cleaned(raw)
    if letters is None:
        raise InputError(f"{path}: record '{shortened(name)}': {complaint(raw)[1]}")
    return letters[0]


def _proteins(record: SeqRecord) -> Iterator[tuple[int, int, str]]:
    """(first base, end, residues) of each coding sequence; pseudogenes code for nothing."""
    for feature in record.features:
        said: dict[str, list[str]] = feature.qualifiers
        if feature.type != "CDS" or feature.location is None:
            continue
        if "pseudo" in said or "pseudogene" in said:
            continue
        residues = said["translation"][0] if "translation" in said else _translated(feature, record)
        place: Any = feature.location
        yield int(place.start), int(place.end), residues


def _translated(feature: Any, record: SeqRecord) -> str:
    """The residues of a coding sequence that comes without its translation."""
    from Bio.Data.CodonTable import TranslationError

    said = feature.qualifiers
    try:
        bases = feature.extract(record.seq)[int(said.get("codon_start", ["1"])[0]) - 1 :]
        bases = bases[: len(bases) // 3 * 3]
        return str(bases.translate(table=int(said.get("transl_table", ["1"])[0])))
    except (TranslationError, ValueError, KeyError):
        return ""  # a location in another record, or an unknown code


class _Expanded(io.RawIOBase):
    """Blocks of bytes as a file."""

    def __init__(self, blocks: Generator[bytes, None, None]) -> None:
        super().__init__()
        self._blocks = blocks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` as far as the current block goes; 0 at the end."""
        if not self._left:
            self._left = memoryview(next(self._blocks, b""))
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
