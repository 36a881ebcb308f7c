"""Make the sequences that are embedded: random ones with realistic lengths, or real ones."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from virnucpro.errors import InputError
from virnucpro.io.chunks import chunk_spans
from virnucpro.io.frames import GENETIC_CODE, open_frames
from virnucpro.io.records import read_records
from virnucpro.layout import Molecule

SENSE = {codon: letter for codon, letter in GENETIC_CODE.items() if letter != "*"}
BATCH = 4096  # chunks translated at a time


class LengthMix(NamedTuple):
    """Chunks of ``chunk`` bases that are cut from records of ``shortest`` to ``longest`` bases."""

    chunk: int
    shortest: int
    longest: int


# Contigs of assemblies; reads of 150 bases, of which trimming leaves some shorter.
MIXES: Mapping[str, LengthMix] = {
    "500": LengthMix(500, 500, 5000),
    "300": LengthMix(300, 300, 5000),
    "reads": LengthMix(150, 100, 150),
}
TRIMMED = 0.2  # the share of reads that are shorter than the longest


@dataclass(frozen=True)
class Workload:
    """Open frames as nucleotides and as proteins, row by row the same frame.

    Attributes:
        name: the name of the length mix or of the file.
        chunk_length: in bases.
        chunks: the number of the chunk of each frame, in rising order.
    """

    name: str
    chunk_length: int
    nucleotides: Sequence[str]
    proteins: Sequence[str]
    chunks: Sequence[int]

    def of(self, molecule: Molecule) -> Sequence[str]:
        """Return the frames as an encoder of ``molecule`` takes them."""
        return self.proteins if molecule == "protein" else self.nucleotides

    def thinned(self, count: int) -> Workload:
        """Return ``count`` of the frames, evenly spread, or all where there are fewer."""
        if count >= len(self.chunks):
            return self
        rows = [i * len(self.chunks) // count for i in range(count)]
        return Workload(
            self.name,
            self.chunk_length,
            [self.nucleotides[i] for i in rows],
            [self.proteins[i] for i in rows],
            [self.chunks[i] for i in rows],
        )


def random_frames(mix: str, count: int) -> Workload:
    """Return ``count`` frames of random codons without a stop, always the same ones.

    They are as long as the frames of chunks that the chunking stage cuts.
    """
    draw = random.Random(count)
    frames = []
    lengths = _chunk_lengths(MIXES[mix], draw)
    for number in range(count):
        bases = next(lengths) - number % 3  # frame 1, 2 or 3
        codons = draw.choices(list(SENSE), k=bases // 3)
        more = draw.choice("ACGT") if bases % 3 else ""
        frames.append(("".join(codons) + more, "".join(map(SENSE.__getitem__, codons)), number))
    return _workload(mix, MIXES[mix].chunk, frames)


def _chunk_lengths(mix: LengthMix, draw: random.Random) -> Iterator[int]:
    """Yield the lengths of chunks, record by record. Record lengths are spread evenly in log."""
    while True:
        if mix.longest == mix.chunk:  # reads: most are whole
            low = mix.shortest if draw.random() < TRIMMED else mix.longest
            length = draw.randint(low, mix.longest)
        else:
            length = round(math.exp(draw.uniform(math.log(mix.shortest), math.log(mix.longest))))
        yield from (stop - start for start, stop in chunk_spans(length, mix.chunk))


def frames_of_file(path: Path, chunk_length: int) -> Workload:
    """Return the open frames of a FASTA or FASTQ file, as predict makes them.

    Raises:
        InputError: the file cannot be used, or it has no open frame.
    """
    chunks = [
        record.sequence[start:stop]
        for record in read_records(path)
        for start, stop in chunk_spans(len(record.sequence), chunk_length)
    ]
    frames = [
        (frame.nucleotide, frame.protein, first + number)
        for first in range(0, len(chunks), BATCH)
        for number, translation in enumerate(open_frames(chunks[first : first + BATCH]))
        for frame in translation.frames
    ]
    if not frames:
        raise InputError(
            f"{path}: no chunk has an open reading frame, so there is nothing to embed"
        )
    return _workload(path.name, chunk_length, frames)


def _workload(name: str, chunk_length: int, frames: Sequence[tuple[str, str, int]]) -> Workload:
    nucleotides, proteins, chunks = zip(*frames, strict=True)
    return Workload(name, chunk_length, nucleotides, proteins, chunks)
