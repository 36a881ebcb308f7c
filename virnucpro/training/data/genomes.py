"""The genome files, each read once: the table row of every record, and the letters to keep.

FASTA, FASTQ and GenBank files are read, of which the last ones say which proteins are annotated.
:func:`survey_genomes` yields the records that a row takes, whose letters go to a temporary file,
because parts are assigned when all records are known: :func:`cut_genomes` cuts them into chunks of
every length and keeps the open frames, :func:`whole_genomes` keeps all.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError
from virnucpro.events import Show, StepAdvanced, StepStarted
from virnucpro.io.frames import FRAME_LABELS, chunk_spans, open_frames
from virnucpro.io.records import Records
from virnucpro.io.text import expanded_blocks, shortened, text_blocks
from virnucpro.store.hashed import HashedFile, refuse_changed_input
from virnucpro.training.data.splits import sketch
from virnucpro.training.data.table import SourceRow

if TYPE_CHECKING:
    import pandas as pd
    from Bio.SeqRecord import SeqRecord

# --- GenBank

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


# --- all formats

TRANSLATED_CHUNKS = 4096  # chunks that are translated together
# What is known of an open frame: the number of its record in the survey, the number of its chunk
# (from 1), the chunk length, its index in ``FRAME_LABELS``, the letters of both molecules, and
# where they begin in the file of sequences.
FRAME = ("number", "chunk", "length", "label", "bases", "residues", "offset")

_LETTERS = bytearray(b"N" * 256)  # what is written for each letter of a genome file
for _base in b"ACGT":
    _LETTERS[_base] = _LETTERS[_base + 32] = _base  # upper and lower case


def read_genome_file(path: Path) -> Iterator[GenomeRecord]:
    """Yield the records of a FASTA, FASTQ or GenBank file; the content decides about the format."""
    if is_genbank(path):
        yield from read_genbank(path)
    else:
        for record in Records(path):
            yield GenomeRecord(record.id, record.header, record.sequence)


def survey_genomes(
    table: Path,
    files: Sequence[tuple[HashedFile, Sequence[SourceRow]]],
    found: list[dict[str, Any]],
    show: Show,
) -> Iterator[tuple[int, GenomeRecord]]:
    """Yield the records that a row takes, each with its place in ``found``.

    What is known of each record is appended there, with the names and the part of its row.
    ``record`` is the id, with ``.2``, ``.3``, ... if an earlier record has the same one; ``sketch``
    takes half a byte of memory per base. A file that has changed since it was hashed is an error.
    """
    show(StepStarted("reading genomes", len(files)))
    copies: dict[str, int] = {}  # of every name in use: the last number appended to it
    for file, rows in files:
        unused = {row.line for row in rows}
        for record in read_genome_file(file.path):
            header = record.header
            row = next((r for r in rows if not r.match or r.match.search(header)), None)
            name = record.id
            while name in copies:
                copies[record.id] += 1
                name = f"{record.id}.{copies[record.id]}"
            copies[name] = 1
            genome, taxon = row.names(name, header) if row else (name, name)
            if row and not taxon:
                raise InputError(
                    f"{table}: line {row.line}: {'taxon' if genome else 'genome'} finds no name in "
                    f"the header '{shortened(header)}' of {file.path}"
                )
            if row:
                unused.discard(row.line)
            found.append(
                {
                    "record": name,
                    "source": rows[0].file,
                    "label": row.label if row else "",
                    "group": row.group if row else "",
                    "genome": genome,
                    "taxon": taxon,
                    "part": "" if row else "unused",
                    "bases": len(record.sequence),
                    "frames": 0,
                    "note": "" if row else "no row of the table is for it",
                    "wanted": row.part if row else None,
                    "test": row.test if row else None,
                    "sketch": sketch(record.sequence),
                }
            )
            if row:
                yield len(found) - 1, record
        refuse_changed_input([file])
        if unused:
            raise InputError(f"{table}: line {min(unused)}: no record is left for this row")
        show(StepAdvanced(1))


def whole_genomes(sources: Iterable[tuple[int, GenomeRecord]], out: IO[bytes]) -> dict[int, int]:
    """Write the letters of records to ``out``; return where those of each number begin.

    They are in upper case, with ``N`` for every letter other than ``A``, ``C``, ``G`` and ``T``.
    """
    places = {}
    for number, record in sources:
        places[number] = out.tell()
        out.write(record.sequence.encode("ascii").translate(_LETTERS))
    return places


def cut_genomes(
    sources: Iterable[tuple[int, GenomeRecord]], lengths: Sequence[int], out: IO[bytes]
) -> pd.DataFrame:
    """Return the open frames of records, with the columns ``FRAME``.

    ``sources`` are records with their numbers in the survey. The sequences are written to ``out``:
    the residues of a frame directly behind its bases. Of a GenBank record, only frames whose
    protein is annotated are kept.
    """
    import pandas as pd

    frames, offset = [pd.DataFrame(columns=FRAME, dtype="int64")], 0

    def chunks() -> Iterator[tuple[int, int, int, GenomeRecord, slice]]:
        for number, record in sources:
            for length in lengths:
                for chunk, span in enumerate(chunk_spans(len(record.sequence), length), 1):
                    yield number, length, chunk, record, slice(*span)

    remaining = chunks()
    while batch := list(islice(remaining, TRANSLATED_CHUNKS)):
        rows = []
        found = open_frames([record.sequence[span] for _, _, _, record, span in batch])
        for place, name, nucleotide, protein in zip(found.chunks.tolist(), *found[2:], strict=True):
            number, length, chunk, record, span = batch[place]
            if not record.may_code(protein, span.start, span.stop):
                continue
            out.write((nucleotide + protein).encode("ascii"))
            sizes = len(nucleotide), len(protein)
            rows.append((number, chunk, length, FRAME_LABELS.index(name), *sizes, offset))
            offset += sum(sizes)
        frames.append(pd.DataFrame(rows, columns=FRAME, dtype="int64"))
    return pd.concat(frames, ignore_index=True)
