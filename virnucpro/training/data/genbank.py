"""A reader of GenBank files: the sequence of each record, and its annotated proteins."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError
from virnucpro.io.text import expanded_blocks, text_blocks

if TYPE_CHECKING:
    from Bio.SeqRecord import SeqRecord

NUCLEOTIDES = frozenset("ACGTRYSWKMBDHVN")  # the codes of IUPAC


class GenomeRecord(NamedTuple):
    """A record of a genome file.

    ``places`` has the first base (from 0) and the end of each annotated protein, int64 ``[n, 2]``,
    and ``proteins`` their residues; None for a format without annotation.
    """

    id: str
    header: str
    sequence: str
    places: npt.NDArray[np.int64] | None = None
    proteins: Sequence[str] = ()

    def may_code(self, protein: str, start: int, stop: int) -> bool:
        """Return whether a protein is part of an annotated one that overlaps ``start:stop``.

        It may be any protein where nothing is annotated in this format.
        """
        if self.places is None:
            return True
        starts, ends = self.places.T
        overlapping = np.flatnonzero((starts < stop) & (ends > start)).tolist()
        return any(protein in self.proteins[number] for number in overlapping)


def is_genbank(path: Path) -> bool:
    """Return whether the expanded content of a file begins as a GenBank file does."""
    with closing(expanded_blocks(path)) as blocks:
        return next(blocks, b"").lstrip().startswith(b"LOCUS ")


def read_genbank(path: Path) -> Iterator[GenomeRecord]:
    """Yield the records of a GenBank file.

    The header consists of the id, the definition and ``[organism]``, so that patterns can find
    each of them. The sequence is empty if the file has none (a record that refers to others).
    """
    from Bio import BiopythonWarning, SeqIO

    after = "at its beginning"
    for text in _whole_records(path):
        try:
            with warnings.catch_warnings():
                # These warnings are about single annotations. What matters here raises.
                warnings.simplefilter("ignore", BiopythonWarning)
                parsed = SeqIO.parse(io.StringIO(text), "genbank")  # type: ignore[no-untyped-call]
                records = [_genome_record(record) for record in parsed]
            if not records:
                raise ValueError("there is no record in it")
        except (ValueError, AssertionError, IndexError) as error:
            raise InputError(f"{path} is damaged {after} ({error}): copy it again") from error
        yield from records
        after = f"after record {records[-1].id}"


def _whole_records(path: Path) -> Iterator[str]:
    """Yield the text of the file, some records at a time."""
    pieces: list[str] = []
    for block in text_blocks(path):
        before, end, rest = block.rpartition("\n//\n")
        pieces.append(before + end)
        if end:
            yield "".join(pieces)
            pieces.clear()
        pieces.append(rest)
    if (text := "".join(pieces)).strip():
        yield text


def _genome_record(record: SeqRecord) -> GenomeRecord:
    from Bio.Data.CodonTable import TranslationError
    from Bio.Seq import UndefinedSequenceError

    name = str(record.id or "").split()[0]
    text = f"{name} {record.description} [{record.annotations.get('organism', '')}]"
    header = "".join(letter if letter.isprintable() else " " for letter in text)
    try:
        sequence = str(record.seq).upper().replace("U", "T")
    except UndefinedSequenceError:
        sequence = ""
    if wrong := set(sequence) - NUCLEOTIDES:
        raise ValueError(f"{min(wrong)!r} is not a nucleotide")
    places, proteins = [], []
    for feature in record.features if sequence else ():
        qualifiers: dict[str, list[str]] = feature.qualifiers
        location: Any = feature.location
        if feature.type != "CDS" or location is None or {"pseudo", "pseudogene"} & set(qualifiers):
            continue
        residues = qualifiers.get("translation", [""])[0]
        if not residues:
            # The location may be in another record, or the code unknown.
            with suppress(TranslationError, ValueError, KeyError):
                residues = str(feature.translate(record.seq, cds=False))  # type: ignore[no-untyped-call]
        places.append((int(location.start), int(location.end)))
        proteins.append(residues)
    return GenomeRecord(name, header, sequence, np.array(places, np.int64).reshape(-1, 2), proteins)
