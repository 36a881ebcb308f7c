"""Embeddings of the split files, on the workers. One stage, two encoders.

The unit of work is a span of a file: thousands of sequences are one file, and must still fill
many GPUs, be balanced, and survive an interruption. The rows of a span are a part file with a
receipt of its own; when all spans of a file are there, they are joined into its feature file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Literal

import torch

from virnucpro.compute.threads import one_thread
from virnucpro.contracts import (
    Device,
    DiskNeed,
    FailedSequences,
    FailedTask,
    FeatureWindow,
    Json,
    OutputFile,
    Receipts,
    Session,
    SpannedStage,
    Stage,
    Task,
    TaskFigures,
    TaskResult,
)
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import family_named, open_encoder
from virnucpro.errors import OutputError
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import Layout, Molecule
from virnucpro.settings import CompileMode, MachineSettings
from virnucpro.stages.embedding_session import EmbeddingSession
from virnucpro.stages.splitting import split_files
from virnucpro.store import legacy
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.features import Features, encode_features, load_features

# Sequences per span: a share of the run, so that many GPUs end together, but at least so many and
# at most so many. Batches of 32,768 tokens are filled the better the larger a span is. DNABERT-S is
# sixteen times as fast: what a span costs beside its sequences, some 10 ms, would weigh more than
# the balance.
SPANS = 640
LEAST_SPAN: Mapping[Molecule, int] = {"nucleotide": 2500, "protein": 250}
MOST_SPAN: Mapping[Molecule, int] = {"nucleotide": 2500, "protein": 2000}
BYTES_PER_NUMBER = 4  # features are float32
# The id of a frame in a feature file, on average, with its share of the rest of the file.
BYTES_PER_ID = 32
COPIES = 2  # of each embedding: in the feature file, and in the merged one


@dataclass(frozen=True)
class EmbeddingStage(SpannedStage):
    """Embeds one molecule with one encoder.

    ``budget`` (tokens or sequences per batch) is for the device and not part of the fingerprint;
    None finds it, unless ``kept`` has one that an earlier start found, by :func:`budget_key`.
    ``compile`` says whether the model is compiled, ``auto`` where ``sequences`` are many: those of
    the whole run, done or not, so that a resumed run computes as it began. With a ``window``, only
    its files are embedded.
    """

    layout: Layout
    disk: Disk
    molecule: Molecule
    source: EncoderSource
    precision: str
    truncation: int
    budget: int | None
    kept: Mapping[str, int] = field(default_factory=dict)
    compile: CompileMode = "auto"
    sequences: int = 0
    window: FeatureWindow | None = None

    runs_on: ClassVar[Literal["host", "worker"]] = "worker"
    intermediate: ClassVar[bool] = True
    in_windows: ClassVar[bool] = True
    version = 1

    @property
    def name(self) -> str:
        """``nucleotide_embeddings`` or ``protein_embeddings``."""
        return f"{self.molecule}_embeddings"

    @property
    def title(self) -> str:
        """What is embedded, and by which kind of encoder."""
        return f"{self.molecule.capitalize()} embeddings ({family_named(self.source.family).title})"

    @property
    def file_pattern(self) -> Path:
        """The feature file of a split file."""
        return self.layout.features(self.molecule, "{number}")

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task per split file."""
        params = {
            "encoder": self.source.sha256,
            "family": self.source.family,
            "precision": self.precision,
            "truncation": self.truncation,
        }
        tasks = []
        files = split_files(receipts, self.layout, self.molecule)
        for number in self.window.files if self.window else range(1, len(files) + 1):
            file = files[number - 1]
            output = self.layout.features(self.molecule, number)
            receipt = output.with_name(output.name + ".done")
            task = Task(self.name, self.version, (file.path,), (output,), receipt, params)
            tasks.append(replace(task, weight=file.bytes, count=file.rows))
        return tasks

    def with_tasks(self, tasks: Sequence[Task]) -> EmbeddingStage:
        """Return the stage with the number of sequences that it has in all."""
        sequences = sum(task.count for task in tasks)
        return replace(self, sequences=self.window.sequences if self.window else sequences)

    def within(self, window: FeatureWindow) -> EmbeddingStage:
        """Return the stage for the files of a window."""
        return replace(self, window=window, kept=window.budgets)

    def writing_to(self, disk: object) -> EmbeddingStage:
        """Return the stage with another :class:`Disk`."""
        assert isinstance(disk, Disk)
        return replace(self, disk=disk)

    def disk_need(self, receipts: Receipts) -> DiskNeed:
        """Return what the embeddings take, in feature files and in the merged ones."""
        frames = sum(f.rows for f in split_files(receipts, self.layout, self.molecule))
        size = COPIES * frames * (self.source.dim * BYTES_PER_NUMBER + BYTES_PER_ID)
        unit = "chunks" if self.source.reading == "whole chunks" else "open frames"
        return DiskNeed(size, f"the features of {frames:,} {unit}")

    def adopt(self, tasks: Sequence[Task]) -> Iterable[TaskResult | str]:
        """Take over the feature files of a run of version 1."""
        return legacy.take_over(self.layout, tasks, self.molecule, self.source.dim)

    def split(self, task: Task) -> list[Task]:
        """Return spans whose size follows from the sequences of the run alone."""
        lengths = [len(sequence) for _, sequence in read_fasta(task.inputs[0])]
        share = max(self.sequences // SPANS, LEAST_SPAN[self.molecule])
        size = min(share, MOST_SPAN[self.molecule])
        return [
            self._span(task, lengths, start, min(start + size, len(lengths)))
            for start in range(0, len(lengths), size)
        ]

    def _span(self, task: Task, lengths: Sequence[int], start: int, stop: int) -> Task:
        family = family_named(self.source.family)
        number = int(task.inputs[0].stem.removeprefix("output_"))
        part = self.layout.part(self.molecule, number, start, stop)
        return replace(
            task,
            outputs=(part,),
            receipt=part.with_name(part.name + ".done"),
            span=(start, stop),
            count=stop - start,
            weight=sum(family.tokens(length, self.truncation) for length in lengths[start:stop]),
        )

    def halve(self, task: Task) -> tuple[Task, Task] | None:
        """Return the two halves of a span; None for a single sequence."""
        assert task.span is not None
        start, stop = task.span
        if stop - start < 2:
            return None
        lengths = [len(sequence) for _, sequence in read_fasta(task.inputs[0])]
        middle = (start + stop) // 2
        return self._span(task, lengths, start, middle), self._span(task, lengths, middle, stop)

    def ids(self, task: Task) -> tuple[str, ...]:
        """Return the ids of the sequences in a span."""
        start, stop = task.span or (0, None)
        return tuple(name for name, _ in read_fasta(task.inputs[0], start, stop))

    def join(
        self, task: Task, parts: Sequence[TaskResult], failures: Sequence[FailedTask]
    ) -> TaskResult:
        """Put the spans of a file together, in file order; what failed has no row.

        Raises:
            OutputError: a part file is not what was written: spans are not flushed to the disk.
        """
        with one_thread():
            loaded = [self._rows(part.outputs[0]) for part in parts]
            ids = [name for part in loaded for name in part.ids]
            rows = [part.data for part in loaded] or [torch.zeros(0, self.source.dim)]
            content = encode_features(Features(ids, torch.cat(rows)), self.molecule)
        output = self.disk.save(task.outputs[0], content, len(ids))
        failed = tuple(FailedSequences(f.error, f.message, f.ids) for f in failures)
        figures = TaskFigures(failures=failed)
        return TaskResult(task, (output,), figures, sum(part.seconds for part in parts))

    def _rows(self, part: OutputFile) -> Features:
        if sha256_of(part.path) != part.sha256:
            text = f"{part.path} has other content than was written to it"
            raise OutputError(f"{text}: check the disk, then {self.disk.again}")
        return load_features(part.path, self.molecule, mapped=True)

    def open(self, device: Device) -> Session:
        """Load the model. Called in the worker, where a GPU is the only one visible."""
        if device.kind == "cuda":
            torch.cuda.empty_cache()  # the blocks of the previous stage's model
        kept = None if self.budget else self.kept.get(budget_key(self.name, device))
        encoder = open_encoder(
            self.source,
            device.kind,
            self.precision,
            budget=self.budget or kept,
            truncation=self.truncation,
        )
        if isinstance(encoder, BatchedEncoder):
            encoder.optimise(self.compile, self.sequences)
        facts = {**encoder.facts(), "precision": self.precision}
        if kept:
            facts["found"] = "kept"
        return EmbeddingSession(encoder, self.source, self.molecule, self.disk, device, facts)


def budget_key(stage: str, device: Device) -> str:
    """Return the name of a measured budget; devices of the same name and memory share it."""
    return f"{stage} on {device.name}, {device.memory} bytes"


@dataclass(frozen=True)
class EncoderSetup:
    """The encoders of a run, and what decides their results.

    ``protein`` is None where the nucleotide encoder reads whole chunks.
    """

    nucleotide: EncoderSource
    protein: EncoderSource | None
    precision: str
    truncation: int

    @property
    def sources(self) -> dict[Molecule, EncoderSource]:
        """The encoders by the molecule that they read, in the order of merged features."""
        sources: dict[Molecule, EncoderSource] = {"nucleotide": self.nucleotide}
        return sources if self.protein is None else {**sources, "protein": self.protein}

    @property
    def molecules(self) -> tuple[Molecule, ...]:
        """The molecules that are embedded."""
        return tuple(self.sources)

    def stages(
        self, layout: Layout, disk: Disk, machine: MachineSettings, budgets: Mapping[str, int]
    ) -> list[Stage]:
        """Return a stage per encoder; ``budgets`` are those of an earlier start."""
        requested = {"nucleotide": machine.nucleotide_batch, "protein": machine.protein_batch}
        return [
            EmbeddingStage(
                layout,
                disk,
                molecule,
                source,
                self.precision,
                self.truncation,
                requested[molecule],
                budgets,
                machine.compile,
            )
            for molecule, source in self.sources.items()
        ]

    def identity(self) -> dict[str, Json]:
        """Return what an embedding depends on, beside its sequence."""
        return {
            "nucleotide model": self.nucleotide.sha256,
            "protein model": self.protein.sha256 if self.protein else None,
            "truncation": self.truncation,
            "precision": self.precision,
        }
