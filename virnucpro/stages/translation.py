"""What the encoders read of every chunk: its open frames, or the chunk as it is."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from operator import add
from typing import ClassVar

import numpy as np

from virnucpro.contracts import MOLECULES, ReportProgress, Task, TaskResult
from virnucpro.encoders.family import Reading
from virnucpro.io.fasta import fasta_batches, fasta_bytes
from virnucpro.io.frames import open_frames, whole_chunks
from virnucpro.stages.base import HostStage
from virnucpro.store.ledger import Ledger
from virnucpro.tables import FRAMES

CHUNKS_AT_A_TIME = 512  # what is made of their bases fits into a cache


@dataclass(frozen=True)
class TranslationStage(HostStage):
    """Translates chunks in six frames; those without a stop codon are kept.

    Where the encoders read whole chunks, the chunks are kept as they are. Its version rises where
    the limits in :mod:`virnucpro.io.frames` change.
    """

    name, title = "translation", "Translation"
    durable: ClassVar[bool] = False

    reading: Reading = "open frames"

    def task(self, ledger: Ledger) -> Task:
        """Return the task of all chunks."""
        framed, layout = self.reading == "open frames", self.layout
        fastas = [layout.frames[each] for each in (MOLECULES if framed else MOLECULES[:1])]
        outputs = (*fastas, layout.frames_table)
        return self.whole((layout.chunked,), outputs, count=ledger.rows(layout.chunked))

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Write the frames, and how many each chunk has."""
        read = open_frames if self.reading == "open frames" else whole_chunks
        with ExitStack() as stack:
            *fastas, table = writers = [
                stack.enter_context(self.disk.create(path, durable=False)) for path in task.outputs
            ]
            for names, texts in fasta_batches(task.inputs[0], CHUNKS_AT_A_TIME):
                frames = read(texts)
                of_frames = [names[place] for place in frames.chunks.tolist()]
                ids = list(map(add, of_frames, frames.labels))
                for fasta, column in zip(fastas, frames[-2:], strict=False):
                    fasta.write(fasta_bytes(zip(ids, column, strict=True)), len(ids))
                counts = np.bincount(frames.chunks, minlength=len(names)).tolist()
                lines = FRAMES.lines(chunk=names, frames=counts, status=frames.statuses)
                table.write(lines.encode(), len(names))
                report(len(names), 0)
        return TaskResult(task, tuple(writer.output for writer in writers))
