"""The open frames of every chunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar

from virnucpro.contracts import Receipts, ReportProgress, Task, TaskFigures, TaskResult
from virnucpro.io.fasta import fasta_bytes, read_fasta
from virnucpro.io.frames import open_frames
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
    """Translates chunks in six frames; those without a stop codon are kept."""

    name: ClassVar[str] = "translation"
    intermediate: ClassVar[bool] = True

    layout: RunLayout

    @property
    def kept_outputs(self) -> frozenset[Path]:
        """The table of open frames per chunk, which the results are made from."""
        return frozenset({self.layout.frames_table})

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task for all chunks."""
        inputs = (self.layout.chunked,)
        outputs = (
            self.layout.frames("nucleotide"),
            self.layout.frames("protein"),
            self.layout.frames_table,
        )
        chunks = receipts.outputs("chunking")[0].rows
        return [self.whole(inputs, outputs, {}, chunks, TranslationFigures)]

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Write the frames as nucleotides and as proteins, and how many each chunk has."""
        row_of = FRAMES.row_format("chunk", "frames", "status")
        statuses: Counter[str] = Counter()
        with (
            self.disk.create(task.outputs[0]) as nucleotides,
            self.disk.create(task.outputs[1]) as proteins,
            self.disk.create(task.outputs[2]) as table,
        ):
            chunks = read_fasta(task.inputs[0])
            while batch := list(islice(chunks, CHUNKS_AT_A_TIME)):
                ids = [name for name, _ in batch]
                translated = open_frames([bases for _, bases in batch])
                frames = [
                    (name + frame.label, frame)
                    for name, chunk in zip(ids, translated, strict=True)
                    for frame in chunk.frames
                ]
                nucleotide_pairs = ((name, frame.nucleotide) for name, frame in frames)
                protein_pairs = ((name, frame.protein) for name, frame in frames)
                nucleotides.write(fasta_bytes(nucleotide_pairs), len(frames))
                proteins.write(fasta_bytes(protein_pairs), len(frames))
                lines = (
                    row_of(name, len(chunk.frames), chunk.status)
                    for name, chunk in zip(ids, translated, strict=True)
                )
                table.write("".join(lines).encode(), len(batch))
                statuses.update(chunk.status for chunk in translated)
                report(len(batch), 0)
        outputs = (nucleotides.output, proteins.output, table.output)
        figures = TranslationFigures(frames=outputs[0].rows, chunks=dict(sorted(statuses.items())))
        return TaskResult(task, outputs, figures)
