"""Features of proteins by an ESM-2 model, a vector per residue, computed by the workers of a run.

::

    FEATURES/
      index.json                    encoder, width, and the files below
      features_0001.safetensors ... one tensor per protein, float16 ``[L, width]``, by the
                                    SHA-256 of its sequence; the shortest proteins first
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import torch
from safetensors.torch import save

from virnucpro.contracts import (
    Device,
    Json,
    Receipts,
    ReportProgress,
    Session,
    SessionFigures,
    Stage,
    Task,
    TaskFigures,
    TaskResult,
)
from virnucpro.devices import choose_devices, visible_gpus
from virnucpro.encoders.esm2 import Esm2Encoder
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import check_precision, locate, open_encoder
from virnucpro.errors import InputError, UsageError
from virnucpro.events import Emit, Notice
from virnucpro.executors.executor import open_executor
from virnucpro.executors.signals import Interruption
from virnucpro.layout import Layout, existing_paths
from virnucpro.precision import choose_precision, emulation_warnings
from virnucpro.rcl.proteins import AnnotatedProtein
from virnucpro.rcl.stored_features import INDEX, sequence_key
from virnucpro.run.engine import Run, checked_state, execute
from virnucpro.run.request import check_writable
from virnucpro.settings import MachineSettings
from virnucpro.stages.embedding import budget_key
from virnucpro.stages.embedding_session import records_of
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import sealed
from virnucpro.store.lock import locked
from virnucpro.store.receipts import write_receipt
from virnucpro.store.state import RunState

STEM = "features"
SCHEMA = 1
PROTEINS_PER_FILE = 64
CHECKED = "LAGVSERTIDPKQNFYMHWC"  # a sequence that is known to be good


class FeatureLayout(Layout):
    """The files of stored features."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, STEM)
        self.index = root / INDEX

    def block(self, number: int) -> Path:
        """Return the FASTA file of the proteins of block ``number``, from 1."""
        return self.state / f"proteins_{number:04d}.fa"

    def residues(self, number: int) -> Path:
        """Return the file of the features of block ``number``."""
        return self.root / f"features_{number:04d}.safetensors"

    def owned(self) -> list[Path]:
        """Return everything of the features that exists, the state last."""
        return existing_paths(
            *sorted(self.root.glob("features_*.safetensors")), self.index, self.state
        )


@dataclass(frozen=True)
class ResidueStage(Stage):
    """Embeds the residues of proteins, a file of proteins per task.

    Attributes:
        layout: of the features.
        disk: what writes.
        source: the ESM-2 model.
        precision: its arithmetic.
        counts: proteins of each block.
        weights: residues of each block.
        longest: residues of the longest protein.
        budget: tokens per batch; None measures.
        kept: budgets that an earlier start found.
    """

    layout: FeatureLayout
    disk: Disk
    source: EncoderSource
    precision: str
    counts: tuple[int, ...]
    weights: tuple[int, ...]
    longest: int
    budget: int | None
    kept: Mapping[str, int]

    runs_on: ClassVar[Literal["host", "worker"]] = "worker"
    version = 1

    @property
    def name(self) -> str:
        """Unique in a run."""
        return "residue_features"

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task per block."""
        params = {"encoder": self.source.sha256, "precision": self.precision}
        tasks = []
        for number, (count, weight) in enumerate(zip(self.counts, self.weights, strict=True), 1):
            output = self.layout.residues(number)
            receipt = self.layout.state / f"{output.name}.done"
            inputs = (self.layout.block(number),)
            task = Task(self.name, self.version, inputs, (output,), receipt, params)
            tasks.append(replace(task, weight=weight, count=count))
        return tasks

    def open(self, device: Device) -> Session:
        """Load the model."""
        kept = self.kept.get(budget_key(self.name, device))
        encoder = open_encoder(
            self.source,
            device.kind,
            self.precision,
            budget=self.budget or kept,
            truncation=self.longest,
        )
        assert isinstance(encoder, Esm2Encoder)
        return ResidueSession(self, encoder, device)


class ResidueSession:
    """An ESM-2 on its device, called on blocks. A :class:`virnucpro.contracts.ModelSession`."""

    def __init__(self, stage: ResidueStage, encoder: Esm2Encoder, device: Device) -> None:
        self._stage, self._encoder, self._device = stage, encoder, device

    def __call__(self, task: Task, report: ReportProgress) -> TaskResult:
        """Embed the proteins of a block, and write their features and the receipt.

        Of a trial nothing is written.

        Raises:
            ArithmeticError: a feature has NaN or infinite values.
            OutputError: the file cannot be written.
        """
        started = time.perf_counter()
        records, failures = records_of(task)
        sequences = [sequence for _, sequence in records]
        rows = self._encoder.encode_residues(sequences, report)
        tensors = {
            sequence_key(sequence): row.to(torch.float16).contiguous()
            for sequence, row in zip(sequences, rows, strict=True)
        }
        self._stage.source.refuse_changed()
        if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
            raise ArithmeticError(f"features of {task.name} are not finite")
        if task.trial is not None:
            return TaskResult(task, ())
        output = self._stage.disk.save(task.outputs[0], save(tensors), len(tensors))
        seconds = time.perf_counter() - started
        result = TaskResult(task, (output,), TaskFigures(failures=failures), seconds)
        write_receipt(self._stage.disk, result)
        return result

    def facts(self) -> Mapping[str, Json]:
        """Return what was known when it was opened."""
        return {**self._encoder.facts(), "precision": self._stage.precision}

    def check(self) -> None:
        """Embed a protein that is known to be good. Raises ArithmeticError where that fails."""
        (row,) = self._encoder.encode_residues([CHECKED], lambda sequences, tokens: None)
        if not bool(torch.isfinite(row).all()):
            raise ArithmeticError("its features are not finite")

    def shrink(self) -> bool:
        """Halve the batches; False where the last task already went one sequence at a time."""
        return self._encoder.shrink()

    def figures(self) -> SessionFigures:
        """Return the most bytes of device memory."""
        peak = torch.cuda.max_memory_allocated() if self._device.kind == "cuda" else 0
        return SessionFigures(peak)


@dataclass(frozen=True)
class RclEmbedRequest:
    """What the user asked for.

    Attributes:
        proteins: what is embedded; equal sequences are embedded once.
        model: name or path of the ESM-2 model.
        folder: of the features.
        machine: devices, threads and batches.
        precision: ``auto`` or a name of the table of precisions.
        per_file: proteins per file, after which nothing of them is computed again.
        resume: continue what is there.
        force: start over.
    """

    proteins: Sequence[AnnotatedProtein]
    model: str
    folder: Path
    machine: MachineSettings
    precision: str = "auto"
    per_file: int = PROTEINS_PER_FILE
    resume: bool = False
    force: bool = False


def embed_residues(
    request: RclEmbedRequest,
    emit: Emit,
    interruption: Interruption | None = None,
    disk: Disk | None = None,
) -> int:
    """Compute features, or what is missing of them; return the files that this start computed.

    Raises:
        VirNucProError: see ``virnucpro.errors``; nothing that was finished is lost.
    """
    disk = disk or Disk()
    layout = FeatureLayout(request.folder.absolute())
    devices = choose_devices(request.machine, visible_gpus())
    precision = choose_precision(request.precision, devices)
    source = locate(request.model, "protein")
    if source.family != "esm2":
        raise UsageError(f"{request.model} is not an ESM-2 model: features per residue need one")
    check_precision(precision, source)
    for warning in emulation_warnings(precision, devices):
        emit(Notice("warning", warning))
    check_writable(layout)
    unique = {protein.sequence: protein.accession for protein in request.proteins}
    order = sorted(unique, key=lambda sequence: (len(sequence), sequence))
    size = request.per_file
    blocks = [order[start : start + size] for start in range(0, len(order), size)]
    state = RunState(
        str(layout.root),
        {
            "model": source.sha256,
            "precision": precision,
            "proteins per file": size,
            "proteins": hashlib.sha256("\n".join(order).encode()).hexdigest(),
        },
    )
    with ExitStack() as stack:
        stack.enter_context(locked(layout.lock))
        names = {layout.residues(number).name for number in range(1, len(blocks) + 1)}
        disk.sweep(layout.root, {*names, layout.index.name})
        state = checked_state(layout, disk, state, emit, resume=request.resume, force=request.force)
        for number, block in enumerate(blocks, 1):
            text = "".join(f">{unique[sequence]}\n{sequence}\n" for sequence in block).encode()
            path = layout.block(number)
            if not path.exists() or path.read_bytes() != text:
                disk.save(path, text)
        stage = ResidueStage(
            layout,
            disk,
            source,
            precision,
            tuple(len(block) for block in blocks),
            tuple(sum(map(len, block)) for block in blocks),
            len(order[-1]),
            request.machine.protein_batch,
            state.budgets,
        )
        executor = open_executor(devices, request.machine, interruption)
        stack.callback(executor.close)
        run = Run(layout, disk, [stage], state, command="rcl embed")
        emit(Notice("info", f"{len(order):,} different proteins in {len(blocks):,} files"))
        outcome = execute(run, executor, emit)
        if failed := [name for failure in outcome.failures for name in failure.ids]:
            raise InputError(
                f"{len(failed):,} proteins could not be embedded, {failed[0]} among them: the same "
                f"command tries them again"
            )
        files = [layout.residues(number) for number in range(1, len(blocks) + 1)]
        index: dict[str, Json] = {
            "schema": SCHEMA,
            "content": "rcl features",
            "model": source.name,
            "model_sha256": source.sha256,
            "precision": precision,
            "width": source.dim,
            "files": {path.name: sha256_of(path) for path in files},
        }
        disk.save(layout.index, sealed(index))
    return outcome.computed.total()
