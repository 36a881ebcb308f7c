"""The frames in files, which are the units of work, of retry and of resume."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from itertools import compress, islice, repeat
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from virnucpro.contracts import (
    MOLECULES,
    Molecule,
    OutputFile,
    ReportProgress,
    Task,
    TaskResult,
)
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import Layout
from virnucpro.stages.base import HostStage
from virnucpro.store.ledger import Ledger
from virnucpro.tables import COPIES

SPLITTING = "splitting"  # the stage whose outputs are the split files
DIGEST_BYTES = 16  # two different ones among 1e9 are equal with a probability of 1e-21
COPIES_AT_A_TIME = 4096  # are written together
SORTED_AT_A_TIME = 1 << 20  # digests; sorting takes 90 bytes for each of them


def first_indices(digests: bytearray) -> npt.NDArray[np.uint32]:
    """Return for each of the joined ``digests`` the index of the first one that is equal.

    That of a digest without an earlier equal one is its own. Takes 4 bytes per digest, and what a
    part of them needs to be sorted.
    """
    keys = np.frombuffer(digests, f"S{DIGEST_BYTES}")  # all of one length, so zeros at ends count
    starts = keys.view(np.uint64)[:: DIGEST_BYTES // 8]
    firsts = np.empty(len(keys), np.uint32)
    parts = -(-len(keys) // SORTED_AT_A_TIME)
    for part in range(parts):  # equal digests are in the same part
        indices = np.flatnonzero(starts % np.uint64(parts) == part)
        _, first, number = np.unique(keys[indices], return_index=True, return_inverse=True)
        firsts[indices] = indices[first[number]]
    return firsts


def digests_of_frames(files: Sequence[Path]) -> bytearray:
    """Return the joined digests of frames, each of its sequences in all FASTA ``files``."""
    digests = bytearray()
    with ExitStack() as stack:
        opened = [stack.enter_context(path.open("rb")) for path in files]
        # Every second line is a sequence; the line feed at its end separates molecules.
        for texts in zip(*(islice(file, 1, None, 2) for file in opened), strict=True):
            digests += blake2b(b"".join(texts), digest_size=DIGEST_BYTES).digest()
    return digests


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


@dataclass(frozen=True)
class SplittingStage(HostStage):
    """Writes the split files, the same ids for all ``molecules``, numbered from 1.

    A file has ``exactly`` so many frames, or as many as :func:`frames_per_file` says. With
    ``dedup``, a frame is left out where an earlier one has the same sequences in all molecules; the
    table of copies says which one.
    """

    name, title = SPLITTING, "Splitting"
    durable: ClassVar[bool] = False

    sequences_per_file: int | None = None
    exactly: int | None = None
    molecules: tuple[Molecule, ...] = MOLECULES
    dedup: bool = False

    def task(self, ledger: Ledger) -> Task:
        """Return the task; how many files it writes is known afterwards."""
        inputs = tuple(self.layout.frames[each] for each in self.molecules)
        return self.whole(inputs, (), count=len(inputs) * ledger.rows(inputs[0]))

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Write the files of all molecules, and the table of copies."""
        outputs: list[OutputFile] = []
        embedded: Iterable[int] = repeat(1)  # line by line: headers and sequences
        if self.dedup:
            firsts = first_indices(digests_of_frames(task.inputs))
            is_copy = firsts != np.arange(len(firsts))
            outputs.append(self._write_copies(task.inputs[0], is_copy, firsts[is_copy] + 1))
            report(len(self.molecules) * outputs[0].rows, 0)
            embedded = np.repeat(~is_copy, 2).tobytes()
            frames = len(firsts) - outputs[0].rows
        else:
            with task.inputs[0].open("rb") as lines:
                frames = sum(1 for _ in lines) // 2
        size = self.exactly or frames_per_file(
            frames, proteins="protein" in self.molecules, most=self.sequences_per_file
        )
        for molecule in self.molecules:
            with self.layout.frames[molecule].open("rb") as lines:
                chosen = compress(lines, embedded)
                for number, start in enumerate(range(0, frames, size), 1):
                    content = b"".join(islice(chosen, 2 * size))
                    rows, path = min(size, frames - start), self.layout.split(molecule, number)
                    outputs.append(self.disk.save(path, content, rows, durable=False))
                    report(rows, 0)
        return TaskResult(task, tuple(outputs))

    def _write_copies(
        self, frames: Path, is_copy: npt.NDArray[np.bool_], numbers: npt.NDArray[np.uint32]
    ) -> OutputFile:
        """Write a row per copy: its id, and the number, from 1, of the frame that it repeats."""
        with (
            frames.open("rb") as lines,
            self.disk.create(self.layout.copies_table, durable=False) as table,
        ):
            headers = compress(islice(lines, 0, None, 2), is_copy.tobytes())
            for start in range(0, len(numbers), COPIES_AT_A_TIME):
                names = [header[1:-1].decode() for header in islice(headers, COPIES_AT_A_TIME)]
                own = numbers[start : start + COPIES_AT_A_TIME].tolist()
                table.write(COPIES.lines(frame=names, first=own).encode(), len(names))
        return table.output


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


def split_files(ledger: Ledger, layout: Layout, molecule: Molecule) -> list[OutputFile]:
    """Return the split files of one molecule, in the order of their numbers."""
    folder = layout.folders[molecule]
    return [file for file in ledger.outputs(SPLITTING) if file.path.parent == folder]
