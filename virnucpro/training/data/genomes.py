"""The two passes over the genome files.

The first pass (:func:`survey_genomes`) finds all records and the table row of each. The parts are
assigned between the passes. The second pass (:func:`records_of_parts`) reads the records that go
to a part: :func:`cut_genomes` cuts them into chunks of every length, and keeps their open frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError
from virnucpro.events import StepProgress
from virnucpro.io.frames import FRAME_LABELS, chunk_spans, open_frames
from virnucpro.io.records import read_records
from virnucpro.io.text import shortened
from virnucpro.stages.chunking import changed_input_error, hashed_input, refuse_changed_input
from virnucpro.store.disk import Disk, HashedFile
from virnucpro.training.data.genbank import GenomeRecord, is_genbank, read_genbank
from virnucpro.training.data.relatives import sketch
from virnucpro.training.data.table import SourceRow

if TYPE_CHECKING:
    import pandas as pd

TRANSLATED_CHUNKS = 4096  # chunks that are translated together
FRAME = np.dtype(
    [
        ("number", np.int32),  # of its record in the survey
        ("chunk", np.int32),  # its number in the record, from 1
        ("length", np.int32),  # the chunk length
        ("label", np.int8),  # the index in ``FRAME_LABELS``
        ("bases", np.int32),
        ("residues", np.int32),
        ("offset", np.int64),  # where the bases begin in the file of sequences
    ]
)
"""What is known of an open frame."""


class GenomeFile(NamedTuple):
    """A file of the table as it was hashed, with its name in the table and its rows."""

    source: HashedFile
    name: str
    rows: Sequence[SourceRow]


def genome_files(rows: Sequence[SourceRow], progress: StepProgress) -> list[GenomeFile]:
    """Hash the files of the table, each once, in the order of their first rows."""
    rows_by_path: dict[Path, list[SourceRow]] = {}
    for row in rows:
        rows_by_path.setdefault(row.path, []).append(row)
    progress.begin("checksums of the genomes", len(rows_by_path))
    files = []
    for path, file_rows in rows_by_path.items():
        files.append(GenomeFile(hashed_input(path), file_rows[0].file, file_rows))
        progress.advance(1)
    return files


def read_genome_file(path: Path) -> Iterator[GenomeRecord]:
    """Yield the records of a FASTA, FASTQ or GenBank file; the content decides about the format."""
    if is_genbank(path):
        yield from read_genbank(path)
    else:
        for record in read_records(path):
            yield GenomeRecord(record.id, record.header, record.sequence, None)


def survey_genomes(
    table: Path, files: Sequence[GenomeFile], progress: StepProgress
) -> pd.DataFrame:
    """Return all records in the order of the files, with the names and the part of their rows.

    ``record`` is the id, with ``.2``, ``.3``, ... if an earlier record has the same one; ``sketch``
    takes half a byte of memory per base.
    """
    import pandas as pd

    progress.begin("reading genomes", sum(file.source.stamp.size for file in files))
    found = []
    copies: dict[str, int] = {}  # of every name in use: the last number appended to it
    for file in files:
        unused = {row.line for row in file.rows}
        for record in read_genome_file(file.source.path):
            header = record.header
            row = next((r for r in file.rows if not r.match or r.match.search(header)), None)
            name = record.id
            while name in copies:
                copies[record.id] += 1
                name = f"{record.id}.{copies[record.id]}"
            copies[name] = 1
            genome, taxon = row.names(name, header) if row else (name, name)
            if not taxon:
                assert row is not None
                raise InputError(
                    f"{table}: line {row.line}: {'taxon' if genome else 'genome'} finds no name in "
                    f"the header '{shortened(header)}' of {file.source.path}: correct the pattern, "
                    f"or leave these records to another row with match"
                )
            if row:
                unused.discard(row.line)
            found.append(
                {
                    "record": name,
                    "source": file.name,
                    "label": row.label if row else "",
                    "group": row.group if row else "",
                    "genome": genome,
                    "taxon": taxon,
                    "part": "" if row else "unused",
                    "bases": len(record.sequence),
                    "chunks": 0,
                    "frames": 0,
                    "note": "" if row else "no row of the table is for it",
                    "reason": "" if row else "unused",
                    "wanted": row.part if row else None,
                    "test": row.test if row else None,
                    "sketch": sketch(record.sequence),
                }
            )
        if unused:
            raise InputError(
                f"{table}: line {min(unused)}: the row of {file.name} is for no record of it: it "
                f"matches none, or earlier rows take them all"
            )
        progress.advance(file.source.stamp.size)
    return pd.DataFrame(found)


def records_of_parts(
    records: pd.DataFrame, files: Sequence[GenomeFile], parts: Sequence[str]
) -> Iterator[tuple[int, GenomeRecord]]:
    """Yield the records that go to one of the ``parts``, each with its number in the survey."""
    chosen, bases = records["part"].isin(parts).to_numpy(), records["bases"].to_numpy()
    number = -1
    for file in files:
        for record in read_genome_file(file.source.path):
            number += 1
            if number >= len(bases) or len(record.sequence) != bases[number]:
                raise changed_input_error(file.source.path)
            if chosen[number]:
                yield number, record
        refuse_changed_input([file.source])


def chunk_positions(bases: int, length: int, stride: int | None) -> list[tuple[int, int]]:
    """Return start and stop of the chunks of a record of ``bases`` bases.

    Without a stride they are those of ``predict``. With one, a chunk begins every ``stride``
    bases and has the full ``length``; a shorter record is one chunk.
    """
    if stride is None or bases <= length:
        return chunk_spans(bases, length)
    return [(start, start + length) for start in range(0, bases - length + 1, stride)]


def cut_genomes(
    sources: Iterator[tuple[int, GenomeRecord]],
    lengths: Sequence[int],
    stride: int | None,
    path: Path,
    disk: Disk,
    progress: StepProgress,
) -> npt.NDArray[np.void]:
    """Return the open frames of records, an array ``[n]`` of ``FRAME``.

    ``sources`` are records with their numbers in the survey. The sequences are written into the
    file ``path``: the residues of a frame directly behind its bases. Of a GenBank record, only
    frames whose protein is annotated are kept.
    """
    frames = [np.empty(0, FRAME)]
    offset = 0
    chunks = (
        (number, length, chunk, record, slice(*span))
        for number, record in sources
        for length in lengths
        for chunk, span in enumerate(chunk_positions(len(record.sequence), length, stride), 1)
    )
    with disk.create(path) as out:
        while batch := list(islice(chunks, TRANSLATED_CHUNKS)):
            rows = []
            translated = open_frames([record.sequence[span] for _, _, _, record, span in batch])
            for (number, length, chunk, record, span), result in zip(
                batch, translated, strict=True
            ):
                for frame in result.frames:
                    coding = record.coding
                    if coding and not coding.contains(frame.protein, span.start, span.stop):
                        continue
                    out.write((frame.nucleotide + frame.protein).encode("ascii"))
                    sizes = len(frame.nucleotide), len(frame.protein)
                    label = FRAME_LABELS.index(frame.label)
                    rows.append((number, chunk, length, label, *sizes, offset))
                    offset += sum(sizes)
            frames.append(np.array(rows, FRAME))
            progress.advance(len(batch))
    return np.concatenate(frames)
