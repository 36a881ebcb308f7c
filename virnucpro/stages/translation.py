"""What the encoders read of every chunk: its open frames, or the chunk as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from virnucpro.contracts import Receipts, ReportProgress, Task, TaskFigures, TaskResult
from virnucpro.encoders.family import Reading
from virnucpro.io.fasta import fasta_bytes, read_fasta
from virnucpro.io.frames import open_frames, whole_chunks
from virnucpro.layout import RunLayout
from virnucpro.stages.base import HostStage
from virnucpro.tables import FRAMES

CHUNKS_AT_A_TIME = 4096  # some 2 MB of bases, which fits into a cache


@dataclass(frozen=True, kw_only=True)
class TranslationFigures(TaskFigures):
    """The number of open frames, and of chunks by what became of them."""

    frames: int
    chunks: Mapping[str, int]


@dataclass(frozen=True)
class TranslationStage(HostStage):
    """Translates chunks in six frames; those without a stop codon are kept.

    Where the encoders read whole chunks, the chunks are kept as they are.
    """

    name: ClassVar[str] = "translation"
    intermediate: ClassVar[bool] = True
    durable: ClassVar[bool] = False

    layout: RunLayout
    reading: Reading = "open frames"

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task for all chunks."""
        inputs = (self.layout.chunked,)
        fastas = [self.layout.frames("nucleotide")]
        if self.reading == "open frames":
            fastas.append(self.layout.frames("protein"))
        outputs = (*fastas, self.layout.frames_table)
        chunks = receipts.outputs("chunking")[0].rows
        params = {} if self.reading == "open frames" else {"reading": self.reading}
        return [self.whole(inputs, outputs, params, chunks, TranslationFigures)]

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Write the frames, and how many each chunk has."""
        row_of = FRAMES.row_format("chunk", "frames", "status")
        read = open_frames if self.reading == "open frames" else whole_chunks
        statuses: Counter[str] = Counter()
        with ExitStack() as stack:
            *fastas, table = (
                stack.enter_context(self.disk.create(path, durable=False)) for path in task.outputs
            )
            chunks = read_fasta(task.inputs[0])
            while batch := list(islice(chunks, CHUNKS_AT_A_TIME)):
                ids = [name for name, _ in batch]
                translated = read([bases for _, bases in batch])
                frames = [
                    (name + frame.label, frame)
                    for name, chunk in zip(ids, translated, strict=True)
                    for frame in chunk.frames
                ]
                texts = (
                    ((name, frame.nucleotide) for name, frame in frames),
                    ((name, frame.protein) for name, frame in frames),
                )
                for fasta, pairs in zip(fastas, texts, strict=False):
                    fasta.write(fasta_bytes(pairs), len(frames))
                lines = (
                    row_of(name, len(chunk.frames), chunk.status)
                    for name, chunk in zip(ids, translated, strict=True)
                )
                table.write("".join(lines).encode(), len(batch))
                statuses.update(chunk.status for chunk in translated)
                report(len(batch), 0)
        outputs = (*(fasta.output for fasta in fastas), table.output)
        figures = TranslationFigures(frames=outputs[0].rows, chunks=dict(sorted(statuses.items())))
        return TaskResult(task, outputs, figures)
