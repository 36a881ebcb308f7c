"""A reader of GenBank files: the sequence of each record, and its annotated proteins."""

from __future__ import annotations

import io
import warnings
from bisect import bisect_left
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from virnucpro.errors import InputError, UsageError
from virnucpro.io.compression import expanded_blocks
from virnucpro.io.letters import clean_sequences, describe_illegal_letter
from virnucpro.io.text import shortened

if TYPE_CHECKING:
    from Bio.SeqRecord import SeqRecord


class CodingSequences:
    """The annotated proteins of a record, ordered by their position."""

    def __init__(self, proteins: list[tuple[int, int, str]]) -> None:
        """Take the first base (from 0), the end and the residues of each coding sequence."""
        self._proteins = sorted(proteins)
        self._starts = [start for start, _, _ in self._proteins]
        # Ends do not ascend with the starts. Their running maximum does, so a binary search in
        # it finds the first protein that can reach a position.
        self._furthest_ends: list[int] = []
        furthest = 0
        for _, end, _ in self._proteins:
            furthest = max(end, furthest)
            self._furthest_ends.append(furthest)

    def contains(self, protein: str, start: int, stop: int) -> bool:
        """Return whether ``protein`` is part of one that overlaps the bases ``start:stop``."""
        first = bisect_left(self._furthest_ends, start + 1)
        last = bisect_left(self._starts, stop)
        return any(
            end > start and protein in residues for _, end, residues in self._proteins[first:last]
        )


class GenomeRecord(NamedTuple):
    """A record as it is read from a FASTA, FASTQ or GenBank file.

    Attributes:
        id: the first word of the header.
        header: the whole header, without ``>``.
        sequence: IUPAC letters; empty if the file has none.
        coding: the annotated proteins; None for a format without annotation.
    """

    id: str
    header: str
    sequence: str
    coding: CodingSequences | None


def is_genbank(path: Path) -> bool:
    """Return whether the expanded content of a file begins as a GenBank file does.

    Raises:
        UsageError, InputError: as :func:`expanded_blocks`.
    """
    with closing(expanded_blocks(path)) as blocks:
        return next(blocks, b"").lstrip().startswith(b"LOCUS ")


def read_genbank(path: Path) -> Iterator[GenomeRecord]:
    """Yield the records of a GenBank file.

    The header consists of the id, the definition and ``[organism]``, so that patterns can find
    each of them. The sequence is empty if the file has none (a record that refers to others).

    Raises:
        UsageError: Biopython is not installed, or the file cannot be read.
        InputError: the file is damaged, or contains a letter that is not a nucleotide.
    """
    try:
        from Bio import BiopythonParserWarning, SeqIO
    except ImportError as error:
        raise UsageError(
            f"{path} is a GenBank file, and Biopython, which reads it, is not installed: "
            f"pip install 'virnucpro[train]'"
        ) from error
    with closing(expanded_blocks(path)) as blocks:
        text = io.TextIOWrapper(io.BufferedReader(_BlockStream(blocks)), "utf-8", errors="replace")
        records = SeqIO.parse(text, "genbank")  # type: ignore[no-untyped-call]
        number = 0
        while True:
            number += 1
            try:
                with warnings.catch_warnings():
                    # These warnings are about single annotations. What matters here raises.
                    warnings.simplefilter("ignore", BiopythonParserWarning)
                    record = next(records, None)
            except (ValueError, AssertionError, IndexError) as error:
                raise InputError(
                    f"{path}: record {number} is damaged ({error}); copy or download the file again"
                ) from error
            if record is None:
                return
            yield _read_record(record, path, number)


def _read_record(record: SeqRecord, path: Path, number: int) -> GenomeRecord:
    from Bio.Seq import UndefinedSequenceError

    words = str(record.id or "").split()
    if not words or words[0].startswith("<unknown"):
        raise InputError(f"{path}: record {number} has no VERSION or LOCUS name: give it one")
    name = words[0]
    organism = str(record.annotations.get("organism", ""))
    text = f"{name} {record.description} [{organism}]"
    header = "".join(letter if letter.isprintable() else " " for letter in text)
    try:
        raw = str(record.seq)
    except UndefinedSequenceError:
        return GenomeRecord(name, header, "", CodingSequences([]))
    if wrong := describe_illegal_letter(raw, "nucleotide"):
        raise InputError(f"{path}: record '{shortened(name)}': {wrong[1]}")
    clean = clean_sequences([raw], "nucleotide")
    sequence = clean[0][0] if clean else ""
    proteins = list(_proteins(record)) if sequence else []
    return GenomeRecord(name, header, sequence, CodingSequences(proteins))


def _proteins(record: SeqRecord) -> Iterator[tuple[int, int, str]]:
    """Yield (first base, end, residues) of each coding sequence. Pseudogenes are passed over."""
    from Bio.Data.CodonTable import TranslationError

    for feature in record.features:
        qualifiers: dict[str, list[str]] = feature.qualifiers
        location: Any = feature.location
        if feature.type != "CDS" or location is None:
            continue
        if "pseudo" in qualifiers or "pseudogene" in qualifiers:
            continue
        if "translation" in qualifiers:
            residues = qualifiers["translation"][0]
        else:
            try:
                offset = int(qualifiers.get("codon_start", ["1"])[0]) - 1
                bases = feature.extract(record.seq)[offset:]  # type: ignore[no-untyped-call]
                bases = bases[: len(bases) // 3 * 3]
                table = int(qualifiers.get("transl_table", ["1"])[0])
                residues = str(bases.translate(table=table))
            except (TranslationError, ValueError, KeyError):
                residues = ""  # the location is in another record, or the code is unknown
        yield int(location.start), int(location.end), residues


class _BlockStream(io.RawIOBase):
    """A readable file over blocks of bytes."""

    def __init__(self, blocks: Generator[bytes, None, None]) -> None:
        super().__init__()
        self._blocks = blocks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return that this stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` as far as the current block goes, and return how far: 0 at the end."""
        if not self._rest:
            self._rest = memoryview(next(self._blocks, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
