"""Embeddings of the split files, on the workers. One stage, two encoders."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, ClassVar

import torch

from virnucpro.compute.compiled import COMPILER_ERRORS, warm_compiler
from virnucpro.contracts import (
    Device,
    Encoder,
    FailedSequences,
    Json,
    Measurements,
    Molecule,
    ReportProgress,
    Session,
    Task,
    TaskFigures,
    TaskResult,
    WorkerStage,
)
from virnucpro.encoders.batched import BatchedEncoder, PreparedBatches
from virnucpro.encoders.family import LETTERS_PER_FRAME, EncoderSource, refuse_changed_models
from virnucpro.encoders.registry import family_named, open_encoder
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import Layout, receipt_beside
from virnucpro.settings import CompileMode, MachineSettings
from virnucpro.stages.splitting import split_files
from virnucpro.store.disk import Disk
from virnucpro.store.features import Features, all_finite, encode_features
from virnucpro.store.ledger import Ledger

CHECKED_FRAMES = 4  # a batch of one sequence would be compiled by itself
READER_THREAD = "file-ahead"


@dataclass(frozen=True)
class EmbeddingStage(WorkerStage):
    """Embeds one molecule with one encoder.

    ``budget`` (tokens or sequences per batch) is for the device and not part of the fingerprint;
    None finds it, unless ``kept`` has one that an earlier start found, by :func:`budget_key`.
    ``compile`` says whether the model is compiled, ``auto`` where ``sequences`` are many: those of
    the whole run, done or not, so that a resumed run computes as it began.
    """

    name: str
    title: str
    layout: Layout
    disk: Disk
    molecule: Molecule
    source: EncoderSource
    precision: str
    truncation: int
    budget: int | None
    compile: CompileMode = "auto"
    kept: Mapping[str, int] = field(default_factory=dict)
    sequences: int = 0

    durable: ClassVar[bool] = False  # a power cut costs what was embedded in the last seconds
    divisible: ClassVar[bool] = True

    def tasks(self, ledger: Ledger) -> list[Task]:
        """Return one task per split file."""
        files = split_files(ledger, self.layout, self.molecule)
        return [
            replace(self.described(number), weight=file.bytes, count=file.rows)
            for number, file in enumerate(files, 1)
        ]

    def described(self, number: int) -> Task:
        """Return the task of a split file of which nothing else is known."""
        split = self.layout.split(self.molecule, number)
        output = self.layout.features(self.molecule, number)
        return Task(
            self.name,
            self.version,
            inputs=(split,),
            outputs=(output,),
            receipt=receipt_beside(output),
            number=number,
        )

    def open(self, device: Device) -> Session:
        """Load the model. Called in the worker, where a GPU is the only one visible."""
        if device.kind == "cuda":
            torch.cuda.empty_cache()  # the blocks of the previous stage's model
        kept = None if self.budget else self.kept.get(budget_key(self.name, device))
        budget = self.budget or kept
        encoder = open_encoder(
            self.source, device.kind, self.precision, budget=budget, truncation=self.truncation
        )
        if isinstance(encoder, BatchedEncoder):
            encoder.optimise(self.compile, self.sequences)
        facts = {**encoder.facts(), "precision": self.precision}
        if kept:
            facts["found"] = "kept"
        if device.kind == "cuda":
            torch.cuda.reset_peak_memory_stats()  # leave out what loading and measuring took
        return EmbeddingSession(encoder, self.source, self.molecule, self.disk, device, facts)


def warm_up(device: Device, *, compile: bool) -> None:
    """Do what opening any encoder takes. That this module is imported for it is most of that.

    On a GPU it begins to use it, and has the compiler begin where blocks are to be compiled. What
    fails here fails again when the stage is opened, and is told then.
    """
    if device.kind != "cuda":
        return
    with suppress(*COMPILER_ERRORS):
        torch.ones(1, device=device.kind)
        if compile:
            warm_compiler(torch.device(device.kind))


def budget_key(stage: str, device: Device) -> str:
    """Return the name of a measured budget; devices of the same name and memory share it."""
    return f"{stage} on {device.name}, {device.memory} bytes"


@dataclass(frozen=True)
class EncoderSetup:
    """The encoders of a run by what they read; one of whole chunks needs none for proteins."""

    sources: Mapping[Molecule, EncoderSource]
    precision: str
    truncation: int

    def stages(self, layout: Layout, disk: Disk, machine: MachineSettings) -> list[EmbeddingStage]:
        """Return a stage per encoder."""
        budgets = {"nucleotide": machine.nucleotide_batch, "protein": machine.protein_batch}
        families = {each: family_named(source.family) for each, source in self.sources.items()}
        return [
            EmbeddingStage(
                f"{each}_embeddings",
                f"{each.capitalize()} embeddings ({families[each].title})",
                layout,
                disk,
                each,
                source,
                families[each].instead.get(self.precision, self.precision),
                self.truncation,
                budgets[each],
                machine.compile,
            )
            for each, source in self.sources.items()
        ]

    def identity(self) -> dict[str, Any]:
        """Return what an embedding depends on, beside its sequence."""
        protein = self.sources.get("protein")
        return {
            "nucleotide_model": self.sources["nucleotide"].sha256,
            "protein_model": protein and protein.sha256,
            "truncation": self.truncation,
            "precision": self.precision,
        }


FileBatches = tuple[list[tuple[str, str]], list[FailedSequences], PreparedBatches | None]
"""The records of a split file, those left out, and the batches that an encoder makes ahead."""


@dataclass(eq=False)
class EmbeddingSession(Session):
    """An encoder that was loaded from a source on a device, called on split files."""

    _encoder: Encoder
    _source: EncoderSource
    _molecule: Molecule
    _disk: Disk
    _device: Device
    facts: Mapping[str, Json]
    _prepared: tuple[Task, Future[FileBatches]] | None = None
    _reader: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, READER_THREAD)
    )
    _computing: Lock = field(default_factory=Lock)

    def prepare(self, task: Task) -> None:
        """Read a file and begin to make its batches, in a thread."""
        self._discard_prepared()
        self._prepared = task, self._reader.submit(self._read, task)

    def _read(self, task: Task) -> FileBatches:
        start, stop = task.trial or (0, None)
        excluded = {failed.row: failed for failed in task.excluded}
        records: list[tuple[str, str]] = []
        failures = []
        for row, record in enumerate(read_fasta(task.inputs[0], start, stop), start):
            if failed := excluded.get(row):
                failures.append(FailedSequences(failed.error, failed.message, (record[0],)))
            else:
                records.append(record)
        batches = None
        if isinstance(self._encoder, BatchedEncoder):
            batches = self._encoder.prepare([text for _, text in records])
        return records, failures, batches

    def _following(self) -> PreparedBatches | None:
        """Wait for the batches of the prepared file, if there is one and it can be read."""
        if self._prepared is None or self._prepared[1].exception():
            return None
        return self._prepared[1].result()[2]

    def _discard_prepared(self) -> None:
        """End the thread that makes batches which nobody will compute."""
        batches, self._prepared = self._following(), None
        if batches is not None:
            batches.rest.close()

    def compute(self, task: Task, report: ReportProgress) -> Callable[[], TaskResult]:
        """Embed a file; what is returned checks the embeddings, and writes them but for a trial.

        Raises:
            ArithmeticError: an embedding has NaN or infinite values.
            OutputError: a file cannot be written.
        """
        started, waited = time.perf_counter(), self._encoder.host_wait_seconds
        # A search may run in the thread that writes, while another task is prepared and computed.
        searching = task.trial is not None or bool(task.excluded)
        if self._prepared is not None and self._prepared[0] == task and not searching:
            future, self._prepared = self._prepared[1], None
            records, failures, batches = future.result()
        else:
            if not searching:
                self._discard_prepared()
            records, failures, batches = self._read(task)
        waited -= time.perf_counter() - started
        sequences = [sequence for _, sequence in records]
        with self._computing:
            if isinstance(self._encoder, BatchedEncoder):
                following = (lambda: None) if searching else self._following
                data = self._encoder.encode(sequences, report, batches, following)
            else:
                data = self._encoder.encode(sequences, report)
        host_wait = round(self._encoder.host_wait_seconds - waited, 3)

        def write() -> TaskResult:
            # Weights may be read from their file as they are used.
            refuse_changed_models(*self._source.files)
            if not all_finite(data):
                raise ArithmeticError(f"embedding of {task.name} is not finite")
            if task.trial is not None:
                return TaskResult(task, ())
            features = Features([name for name, _ in records], data)
            content = encode_features(features, self._molecule)
            output = self._disk.save(task.outputs[0], content, len(features.ids), durable=False)
            figures = TaskFigures(failures=tuple(failures), host_wait_seconds=host_wait)
            return TaskResult(task, (output,), figures, time.perf_counter() - started)

        return write

    def check(self) -> None:
        """Embed frames of all letters; ArithmeticError where the embedding is not finite."""
        letters = LETTERS_PER_FRAME[self._molecule]
        alphabet = family_named(self._source.family).alphabet
        frame = (alphabet * letters)[:letters]
        with self._computing:
            data = self._encoder.encode([frame] * CHECKED_FRAMES, lambda sequences, tokens: None)
        if not all_finite(data):
            raise ArithmeticError("its embedding is not finite")

    def shrink(self) -> bool:
        """Halve the batches; False where the last task already went one sequence at a time."""
        return self._encoder.shrink()

    def measured(self) -> Measurements:
        """Return the most bytes of tensors (torch holds more), and the calls of blocks."""
        peak = torch.cuda.max_memory_allocated() if self._device.kind == "cuda" else 0
        if not isinstance(self._encoder, BatchedEncoder):
            return Measurements(peak)
        calls = self._encoder.network.blocks.calls
        return Measurements(peak, calls.compiled, calls.uncompiled)
