"""Features of proteins by an ESM-2 model, a vector per residue, computed by the workers of a run.

:mod:`virnucpro.rcl.features` describes and reads the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save

from virnucpro.contracts import (
    Device,
    Json,
    ReportProgress,
    Session,
    SessionFigures,
    Task,
    TaskResult,
)
from virnucpro.devices import choose_devices, visible_gpus
from virnucpro.encoders.esm2 import Esm2Encoder
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import check_precision, locate, open_encoder
from virnucpro.events import Emit, Notice
from virnucpro.executors.signals import Interruption
from virnucpro.io.fasta import read_fasta
from virnucpro.precision import choose_precision, emulation_warnings
from virnucpro.rcl.blocks import BlockLayout, BlockStage, compute_blocks, save_blocks
from virnucpro.rcl.features import INDEX, check_esm2, sequence_key
from virnucpro.rcl.proteins import AnnotatedProtein
from virnucpro.run.request import check_writable
from virnucpro.run.run import checked_state
from virnucpro.settings import MachineSettings
from virnucpro.stages.embedding import budget_key
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import sealed
from virnucpro.store.lock import locked
from virnucpro.store.state import RunState

SCHEMA = 1
PROTEINS_PER_FILE = 64
CHECKED = "LAGVSERTIDPKQNFYMHWC"  # a sequence that is known to be good


@dataclass(frozen=True)
class ResidueStage(BlockStage):
    """Embeds the residues of proteins, a file of proteins per task.

    Attributes:
        source: the ESM-2 model.
        precision: its arithmetic.
        longest: residues of the longest protein.
        budget: tokens per batch; None measures.
        kept: budgets that an earlier start found.
    """

    source: EncoderSource
    precision: str
    longest: int
    budget: int | None
    kept: Mapping[str, int]

    name = "residue_features"
    suffixes = ("safetensors",)

    @property
    def params(self) -> dict[str, Json]:
        """What decides the features."""
        return {"encoder": self.source.sha256, "precision": self.precision}

    def open(self, device: Device) -> ResidueSession:
        """Load the model."""
        encoder = open_encoder(
            self.source,
            device.kind,
            self.precision,
            budget=self.budget or self.kept.get(budget_key(self.name, device)),
            truncation=self.longest,
        )
        assert isinstance(encoder, Esm2Encoder)
        return ResidueSession(self, encoder, device)


class ResidueSession(Session):
    """An ESM-2 on its device, called on blocks."""

    def __init__(self, stage: ResidueStage, encoder: Esm2Encoder, device: Device) -> None:
        self._stage, self._encoder, self._device = stage, encoder, device

    def compute(self, task: Task, report: ReportProgress) -> Callable[[], TaskResult]:
        """Embed the proteins of a block; what is returned checks and writes their features.

        Raises:
            ArithmeticError: a feature has NaN or infinite values.
            OutputError: the file cannot be written.
        """
        sequences = [sequence for _, sequence in read_fasta(task.inputs[0])]
        rows = self._encoder.encode_residues(sequences, report)

        def write() -> TaskResult:
            tensors = {
                sequence_key(sequence): row.to(torch.float16).contiguous()
                for sequence, row in zip(sequences, rows, strict=True)
            }
            self._stage.source.refuse_changed()
            if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
                raise ArithmeticError(f"features of {task.name} are not finite")
            output = self._stage.disk.save(task.outputs[0], save(tensors), len(tensors))
            return TaskResult(task, (output,))

        return write

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


def feature_layout(folder: Path) -> BlockLayout:
    """Return the files of stored features."""
    return BlockLayout(folder.absolute(), "features")


def embed_residues(
    proteins: Sequence[AnnotatedProtein],
    model: str,
    folder: Path,
    machine: MachineSettings,
    emit: Emit,
    *,
    precision: str = "auto",
    per_file: int = PROTEINS_PER_FILE,
    resume: bool = False,
    force: bool = False,
    interruption: Interruption | None = None,
) -> int:
    """Compute features, or what is missing of them; return the files that this start computed.

    Equal sequences are embedded once. A file has the features of ``per_file`` proteins, of which
    nothing is computed again once it is finished.

    Raises:
        VirNucProError: see ``virnucpro.errors``; nothing that was finished is lost.
    """
    disk, layout = Disk(), feature_layout(folder)
    devices = choose_devices(machine, visible_gpus())
    precision = choose_precision(precision, devices)
    source = locate(model, "protein")
    check_esm2(source)
    check_precision(precision, source)
    for warning in emulation_warnings(precision, devices):
        emit(Notice("warning", warning))
    check_writable(layout)
    unique = {protein.sequence: protein.accession for protein in proteins}
    order = sorted(unique, key=lambda sequence: (len(sequence), sequence))
    analysis = {
        "model": source.sha256,
        "precision": precision,
        "proteins per file": per_file,
        "proteins": hashlib.sha256("\n".join(order).encode()).hexdigest(),
    }
    with locked(layout.lock):
        disk.sweep(layout.root, {INDEX})
        state = RunState(str(layout.root), analysis)
        state = checked_state(layout, disk, state, emit, resume=resume, force=force)
        pairs = [(unique[sequence], sequence) for sequence in order]
        starts = range(0, len(pairs), per_file)
        blocks = save_blocks(layout, disk, (pairs[n : n + per_file] for n in starts))
        emit(Notice("info", f"{len(order):,} different proteins in {len(blocks):,} files"))
        longest, budget = len(order[-1]), machine.protein_batch
        stage = ResidueStage(
            layout, disk, blocks, source, precision, longest, budget, state.budgets
        )
        computed = compute_blocks(stage, state, devices, machine, "rcl embed", emit, interruption)
        index: dict[str, Json] = {
            "schema": SCHEMA,
            "content": "rcl features",
            "model": source.name,
            "model_sha256": source.sha256,
            "precision": precision,
            "width": source.dim,
            "files": {path.name: sha256_of(path) for path in stage.outputs(*stage.suffixes)},
        }
        disk.save(layout.root / INDEX, sealed(index))
    return computed
