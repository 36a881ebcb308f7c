"""The second pass over the genomes: chunks of every length, and their open frames."""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from virnucpro.io.chunks import chunk_id, chunk_spans
from virnucpro.io.frames import FRAME_LABELS, Frame, open_frames
from virnucpro.layout import Molecule
from virnucpro.stages.chunking import changed, stamp
from virnucpro.store.disk import Disk, Writing
from virnucpro.training.data.genbank import Coding
from virnucpro.training.data.survey import Survey, Watch, read_source

BATCH = 4096  # chunks translated at a time


class _Piece(NamedTuple):
    """A chunk: of which origin, of which length (its place in the list), number from 1."""

    origin: int
    length: int
    number: int
    start: int
    bases: str
    coding: Coding | None


@dataclass(frozen=True)
class Frames:
    """The open frames of all chunks, in the order of the sources.

    Arrays ``[n]``: ``origins`` and ``lengths`` are places in their lists, ``chunks`` counts from
    1, ``labels`` are places in ``FRAME_LABELS``; ``places`` and ``sizes`` (bases, residues) say
    where the sequences lie in the file ``spool``, the residues right behind the bases.
    """

    origins: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int8]
    chunks: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int8]
    bases: npt.NDArray[np.int32]
    residues: npt.NDArray[np.int32]
    places: npt.NDArray[np.int64]
    spool: Path

    @contextmanager
    def sequences(self) -> Iterator[Sequences]:
        """The spool, opened for reading in any order."""
        with self.spool.open("rb") as stream:
            if not len(self.places):
                yield Sequences(self, b"")
                return
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                yield Sequences(self, content)


@dataclass(frozen=True)
class Sequences:
    """Bases and residues of frames by their place in :class:`Frames`."""

    frames: Frames
    content: mmap.mmap | bytes

    def __call__(self, frame: int, molecule: Molecule) -> str:
        """The sequence of one molecule of a frame."""
        start, bases = int(self.frames.places[frame]), int(self.frames.bases[frame])
        if molecule == "nucleotide":
            return self.content[start : start + bases].decode("ascii")
        start += bases
        return self.content[start : start + int(self.frames.residues[frame])].decode("ascii")


def frame_chunk(record: str, length: int, number: int) -> str:
    """The id of chunk ``number`` of a record, for chunks of ``length``: unique over all lengths.

    >>> frame_chunk("NC_001416.1", 500, 7)
    'NC_001416.1_500bp_chunk_7'
    """
    return chunk_id(f"{record}_{length}bp", number)


def spans(bases: int, length: int, stride: int | None) -> list[tuple[int, int]]:
    """Where the chunks of a record lie: as ``predict`` cuts, or one every ``stride`` bases.

    With a stride all chunks have the full ``length``; a shorter record is one chunk.
    """
    if stride is None or bases <= length:
        return chunk_spans(bases, length)
    return [(start, start + length) for start in range(0, bases - length + 1, stride)]


def cut(
    found: Survey,
    lengths: Sequence[int],
    stride: int | None,
    spool: Path,
    disk: Disk,
    watch: Watch,
) -> Frames:
    """Cut what went to a part, and keep its open frames in the file ``spool``.

    Of a GenBank record only frames whose protein is annotated are kept. Counts the chunks of each
    origin. Keeps 30 bytes of memory a frame.

    Raises:
        InputError: a source changed since it was surveyed.
        OutputError: the disk is full or unwritable.
    """
    total = sum(o.bases for o in found.origins if o.part)
    watch.begin("cutting chunks, finding open frames", total * len(lengths))
    with disk.create(spool) as out:
        collected = _Collected(out)
        pieces = _pieces(found, lengths, stride, watch)
        while batch := list(islice(pieces, BATCH)):
            for piece, result in zip(batch, open_frames([p.bases for p in batch]), strict=True):
                found.origins[piece.origin].chunks += 1
                for frame in result.frames:
                    if _annotated(piece, frame):
                        collected.add(piece, frame)
    return collected.frames(spool)


def _annotated(piece: _Piece, frame: Frame) -> bool:
    if piece.coding is None:
        return True
    return piece.coding.holds(frame.protein, piece.start, piece.start + len(piece.bases))


def _pieces(
    found: Survey, lengths: Sequence[int], stride: int | None, watch: Watch
) -> Iterator[_Piece]:
    """The chunks of all records that went to a part, of one length after the other."""
    number = -1
    for source in found.sources:
        for record in read_source(source.path):
            number += 1
            if number >= len(found.origins) or len(record.sequence) != found.origins[number].bases:
                raise changed(source.path)
            if found.origins[number].part is None:
                continue
            for place, length in enumerate(lengths):
                for chunk, (start, stop) in enumerate(
                    spans(len(record.sequence), length, stride), 1
                ):
                    bases = record.sequence[start:stop]
                    yield _Piece(number, place, chunk, start, bases, record.coding)
                watch.advance(len(record.sequence))
        if stamp(source.path) != source.seen:
            raise changed(source.path)


class _Collected:
    """Frames as they are found: their sequences go to the file, the rest is kept."""

    def __init__(self, out: Writing) -> None:
        self._out = out
        self._place = 0
        self._origins, self._chunks = array("i"), array("i")
        self._bases, self._residues = array("i"), array("i")
        self._lengths, self._labels = array("b"), array("b")
        self._places = array("q")

    def add(self, piece: _Piece, frame: Frame) -> None:
        """Take one frame."""
        self._out.write((frame.nucleotide + frame.protein).encode("ascii"))
        self._origins.append(piece.origin)
        self._lengths.append(piece.length)
        self._chunks.append(piece.number)
        self._labels.append(FRAME_LABELS.index(frame.label))
        self._bases.append(len(frame.nucleotide))
        self._residues.append(len(frame.protein))
        self._places.append(self._place)
        self._place += len(frame.nucleotide) + len(frame.protein)

    def frames(self, spool: Path) -> Frames:
        """All of them."""
        return Frames(
            np.array(self._origins, np.int32),
            np.array(self._lengths, np.int8),
            np.array(self._chunks, np.int32),
            np.array(self._labels, np.int8),
            np.array(self._bases, np.int32),
            np.array(self._residues, np.int32),
            np.array(self._places, np.int64),
            spool,
        )
