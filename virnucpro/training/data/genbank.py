"""A reader of GenBank files: the sequence of each record, and its annotated proteins."""

from __future__ import annotations

import io
import warnings
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from virnucpro.errors import InputError
from virnucpro.io.compression import expanded_blocks
from virnucpro.training.packages import require_packages

if TYPE_CHECKING:
    from Bio.SeqRecord import SeqRecord

NUCLEOTIDES = frozenset("ACGTRYSWKMBDHVN")  # the codes of IUPAC


class CodingSequences:
    """The annotated proteins of a record, ordered by their position."""

    def __init__(self, proteins: list[tuple[int, int, str]]) -> None:
        """Take the first base (from 0), the end and the residues of each coding sequence."""
        self._proteins = sorted(proteins)
        self._starts = [start for start, _, _ in self._proteins]
        # Ends do not ascend with the starts. Their running maximum does, so a binary search in
        # it finds the first protein that can reach a position.
        self._furthest_ends = list(accumulate((end for _, end, _ in self._proteins), max))

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
    require_packages(["Bio"], f"{path}, a GenBank file,")
    from Bio import BiopythonWarning, SeqIO

    for number, text in enumerate(_record_texts(path), 1):
        try:
            with warnings.catch_warnings():
                # These warnings are about single annotations. What matters here raises.
                warnings.simplefilter("ignore", BiopythonWarning)
                record = SeqIO.read(io.StringIO(text), "genbank")  # type: ignore[no-untyped-call]
                yield _genome_record(record)
        except (ValueError, AssertionError, IndexError) as error:
            raise InputError(
                f"{path}: record {number} is damaged ({error}); copy or download the file again"
            ) from error


def _record_texts(path: Path) -> Iterator[str]:
    """Yield the lines of each record, which end with ``//``."""
    lines: list[bytes] = []
    rest = b""
    with closing(expanded_blocks(path)) as blocks:
        for block in chain(blocks, [b"\n"]):
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                lines.append(line)
                if line.startswith(b"//"):
                    yield b"\n".join(lines).decode("utf-8", errors="replace")
                    lines = []
    if any(line.strip() for line in lines):
        yield b"\n".join(lines).decode("utf-8", errors="replace")


def _genome_record(record: SeqRecord) -> GenomeRecord:
    from Bio.Seq import UndefinedSequenceError

    name = str(record.id or "").split()[0]
    organism = str(record.annotations.get("organism", ""))
    text = f"{name} {record.description} [{organism}]"
    header = "".join(letter if letter.isprintable() else " " for letter in text)
    try:
        sequence = str(record.seq).upper().replace("U", "T")
    except UndefinedSequenceError:
        return GenomeRecord(name, header, "", CodingSequences([]))
    if wrong := set(sequence) - NUCLEOTIDES:
        raise ValueError(f"{name!r} contains {min(wrong)!r}, which is not a nucleotide")
    return GenomeRecord(name, header, sequence, CodingSequences(list(_proteins(record))))


def _proteins(record: SeqRecord) -> Iterator[tuple[int, int, str]]:
    """Yield (first base, end, residues) of each coding sequence. Pseudogenes are passed over."""
    from Bio.Data.CodonTable import TranslationError

    for feature in record.features:
        qualifiers: dict[str, list[str]] = feature.qualifiers
        location: Any = feature.location
        if feature.type != "CDS" or location is None or {"pseudo", "pseudogene"} & set(qualifiers):
            continue
        residues = qualifiers.get("translation", [""])[0]
        if not residues:
            # The location may be in another record, or the code unknown.
            with suppress(TranslationError, ValueError, KeyError):
                residues = str(feature.translate(record.seq, cds=False))  # type: ignore[no-untyped-call]
        yield int(location.start), int(location.end), residues
