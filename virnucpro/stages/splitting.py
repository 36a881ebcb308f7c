"""The frames in files, which are the units of work, of retry and of resume."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, compress, islice
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from virnucpro.contracts import (
    SPLITTING,
    Json,
    OutputFile,
    Receipts,
    ReportProgress,
    Task,
    TaskFigures,
    TaskResult,
)
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import MOLECULES, Layout, Molecule
from virnucpro.stages.base import HostStage
from virnucpro.store.disk import OutputWriter
from virnucpro.tables import COPIES

DIGEST_BYTES = 16  # two different ones among 1e9 are equal with a probability of 1e-21
SORTED_AT_A_TIME = 1 << 22  # digests; sorting takes 60 bytes for each of them


def digest(*texts: str) -> bytes:
    """Return the digest of texts without line feeds: the same for the same texts only."""
    return blake2b("\n".join(texts).encode(), digest_size=DIGEST_BYTES).digest()


def first_places(digests: bytearray) -> npt.NDArray[np.uint32]:
    """Return for each of the joined ``digests`` the place of the first one that is equal.

    Places count from 0; that of a digest without an earlier equal one is its own. Takes 4 bytes per
    digest, and what a part of them needs to be sorted.
    """
    keys = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    firsts = np.arange(len(keys), dtype=np.uint32)
    parts = -(-len(keys) // SORTED_AT_A_TIME)
    for part in range(parts):  # equal digests are in the same part
        places = np.flatnonzero(keys[:, 0] % np.uint64(parts) == part)
        some = keys[places]
        order = np.lexsort((some[:, 1], some[:, 0]))  # stable: equal ones stay in their order
        some, places = some[order], places[order]
        differs = np.ones(len(some), bool)
        differs[1:] = (some[1:] != some[:-1]).any(axis=1)
        leaders = np.maximum.accumulate(np.where(differs, np.arange(len(some)), 0))
        firsts[places] = places[leaders]
    return firsts


# Frames among which identical ones are found; 100 million reads have fewer. Each of them takes 30
# bytes of memory meanwhile.
COMPARED_FRAMES = 1 << 28
ROWS_AT_A_TIME = 8192  # are written together

# Frames per file. With 640 files, eight or sixteen workers end together, and batches of 32,768
# tokens are filled the better the larger a file is, with 2,000 frames to 98 %. What a
# file costs beside its frames, some 10 ms, is little for 500 proteins, or 2,500 sequences of an
# encoder that is sixteen times as fast.
FILES = 640
LEAST_FRAMES, MOST_FRAMES = 500, 2000
LEAST_CHUNKS = 2500
MOST_FILES = 10_000  # of one molecule: folders with more are slow on network file systems


def frames_per_file(frames: int, *, proteins: bool, most: int | None = None) -> int:
    """Return how many of ``frames`` go into a split file; ``most`` is the bound that was asked for.

    ``proteins`` says whether a protein encoder reads them.
    """
    size = max(LEAST_FRAMES, min(MOST_FRAMES, -(-frames // FILES)))
    size = max(size, -(-frames // MOST_FILES), 0 if proteins else LEAST_CHUNKS)
    return size if most is None else min(size, most)


@dataclass(frozen=True, kw_only=True)
class SplittingFigures(TaskFigures):
    """The number of frames that are the same as an earlier one."""

    copies: int


@dataclass(frozen=True)
class SplittingStage(HostStage):
    """Writes the split files, the same ids for all ``molecules``, numbered from 1.

    A file has ``exactly`` so many frames, or as many as :func:`frames_per_file` says. With
    ``dedup``, a frame is left out where an earlier one has the same sequences in all molecules; the
    table of copies says which one.
    """

    name: ClassVar[str] = SPLITTING
    intermediate: ClassVar[bool] = True
    durable: ClassVar[bool] = False

    sequences_per_file: int | None = None
    exactly: int | None = None
    molecules: tuple[Molecule, ...] = MOLECULES
    dedup: bool = False

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task; how many files it writes is known afterwards."""
        inputs = tuple(map(self.layout.frames, self.molecules))
        params: dict[str, Json] = {"most": self.sequences_per_file, "exactly": self.exactly}
        sequences = len(inputs) * receipts.outputs("translation")[0].rows
        if not self.dedup:  # the task of versions that did not look for copies
            return [self.whole(inputs, (), params, sequences)]
        return [self.whole(inputs, (), {**params, "dedup": True}, sequences, SplittingFigures)]

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Write the files of all molecules, and the table of copies."""
        outputs: list[OutputFile] = []
        figures, embedded = TaskFigures(), None
        if self.dedup:
            with self.disk.create(self.layout.copies_table, durable=False) as table:
                embedded = self._write_copies(table)
            outputs.append(table.output)
            figures = SplittingFigures(copies=table.output.rows)
            report(len(self.molecules) * table.output.rows, 0)
        if embedded is None:
            with self.layout.frames("nucleotide").open("rb") as lines:
                frames = sum(1 for _ in lines) // 2
        else:
            frames = sum(embedded)
        size = self.exactly or frames_per_file(
            frames, proteins="protein" in self.molecules, most=self.sequences_per_file
        )
        for molecule in self.molecules:
            with self.layout.frames(molecule).open("rb") as lines:
                pairs = zip(lines, lines, strict=True)  # a header and a sequence
                records = pairs if embedded is None else compress(pairs, embedded)
                number = 0
                while batch := list(islice(records, size)):
                    number += 1
                    path = self.layout.split(molecule, number)
                    content = b"".join(chain.from_iterable(batch))
                    outputs.append(self.disk.save(path, content, len(batch), durable=False))
                    report(len(batch), 0)
        return TaskResult(task, tuple(outputs), figures)

    def _write_copies(self, table: OutputWriter) -> bytearray:
        """Write the rows of all copies; returns 1 for each frame that is embedded, else 0."""
        row_of = COPIES.row_format("frame", "first")
        embedded = bytearray()
        while digests := self._digests(len(embedded)):
            begin = len(embedded)
            firsts = first_places(digests)
            is_copy = firsts != np.arange(len(firsts))
            frames = read_fasta(self.layout.frames("nucleotide"), begin, begin + len(firsts))
            copies = zip(compress(frames, is_copy), firsts[is_copy], strict=True)
            rows = (row_of(name, begin + int(first) + 1) for (name, _), first in copies)
            while batch := list(islice(rows, ROWS_AT_A_TIME)):
                table.write("".join(batch).encode(), len(batch))
            embedded += (~is_copy).tobytes()
        return embedded

    def _digests(self, start: int) -> bytearray:
        """Return the digests of the frames from ``start`` on, at most ``COMPARED_FRAMES``."""
        files = [self.layout.frames(molecule) for molecule in self.molecules]
        stop = start + COMPARED_FRAMES
        digests = bytearray()
        for records in zip(*(read_fasta(file, start, stop) for file in files), strict=True):
            digests += digest(*(sequence for _, sequence in records))
        return digests


def copies_of(chosen: Collection[str], frames: Path, copies: Path) -> Mapping[str, list[str]]:
    """Return the ids of the copies of the ``chosen`` frames, by the id of the frame."""
    numbers = {
        number: name for number, (name, _) in enumerate(read_fasta(frames), 1) if name in chosen
    }
    found: dict[str, list[str]] = {}
    for copy, first in COPIES.read(copies, "frame", "first"):
        if name := numbers.get(int(first)):
            found.setdefault(name, []).append(copy)
    return found


def split_files(receipts: Receipts, layout: Layout, molecule: Molecule) -> list[OutputFile]:
    """Return the split files of one molecule, in the order of their numbers."""
    folder = layout.folder(molecule)
    return [file for file in receipts.outputs(SPLITTING) if file.path.parent == folder]
