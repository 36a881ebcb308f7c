"""What the encoders read of every chunk: its open frames, or the chunk as it is."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from virnucpro.contracts import MOLECULES, Receipts, ReportProgress, Task, TaskResult
from virnucpro.encoders.family import Reading
from virnucpro.io.fasta import fasta_bytes, read_fasta
from virnucpro.io.frames import LEAST_KMERS, MOST_UNKNOWN, open_frames, whole_chunks
from virnucpro.stages.base import HostStage
from virnucpro.tables import FRAMES

CHUNKS_AT_A_TIME = 4096  # some 2 MB of bases, which fits into a cache


@dataclass(frozen=True)
class TranslationStage(HostStage):
    """Translates chunks in six frames; those without a stop codon are kept.

    Where the encoders read whole chunks, the chunks are kept as they are.
    """

    name, title = "translation", "Translation"
    intermediate: ClassVar[bool] = True
    durable: ClassVar[bool] = False

    reading: Reading = "open frames"

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task for all chunks."""
        framed, layout = self.reading == "open frames", self.layout
        fastas = [layout.frames[each] for each in (MOLECULES if framed else MOLECULES[:1])]
        limits = {"least k-mers": LEAST_KMERS, "most unknown": MOST_UNKNOWN}
        params = {} if framed else {"reading": self.reading, **limits}
        chunks = receipts.rows("chunking", layout.chunked)
        outputs = (*fastas, layout.frames_table)
        return [self.whole((layout.chunked,), outputs, params, count=chunks)]

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Write the frames, and how many each chunk has."""
        row_of = FRAMES.row_format("chunk", "frames", "status")
        read = open_frames if self.reading == "open frames" else whole_chunks
        with ExitStack() as stack:
            *fastas, table = writers = [
                stack.enter_context(self.disk.create(path, durable=False)) for path in task.outputs
            ]
            chunks = read_fasta(task.inputs[0])
            while batch := list(islice(chunks, CHUNKS_AT_A_TIME)):
                names, texts = zip(*batch, strict=True)
                translated = read(texts)
                frames, lines = [], []
                for name, chunk in zip(names, translated, strict=True):
                    frames += [(name + frame.label, *frame[1:]) for frame in chunk.frames]
                    lines.append(row_of(name, len(chunk.frames), chunk.status))
                for column, fasta in enumerate(fastas, 1):
                    fasta.write(fasta_bytes((row[0], row[column]) for row in frames), len(frames))
                table.write("".join(lines).encode(), len(batch))
                report(len(batch), 0)
        return TaskResult(task, tuple(writer.output for writer in writers))
