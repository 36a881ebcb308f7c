"""Features of proteins by an ESM-2 model, a vector per residue, computed by the workers of a run.

:mod:`virnucpro.rcl.features` describes and reads the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save

from virnucpro.contracts import Device, ReportProgress, Task, TaskResult
from virnucpro.devices import choose_devices
from virnucpro.encoders.esm2 import Esm2Encoder
from virnucpro.encoders.family import EncoderSource, refuse_changed_models
from virnucpro.encoders.registry import open_encoder
from virnucpro.events import Show
from virnucpro.io.fasta import read_fasta
from virnucpro.precision import choose_precision
from virnucpro.rcl.blocks import BlockLayout, BlockStage, ReadingStage, carry_out_tasks
from virnucpro.rcl.features import KEY, locate_esm2, sequence_key
from virnucpro.rcl.proteins import AnnotatedProtein
from virnucpro.run.request import check_writable
from virnucpro.run.run import Run
from virnucpro.run.workers import local_workers
from virnucpro.settings import MachineSettings
from virnucpro.stages.embedding import EmbeddingSession, budget_key
from virnucpro.store.disk import Disk
from virnucpro.store.lock import locked
from virnucpro.store.work import RunState, check_run
from virnucpro.workers.signals import Interruption


@dataclass(frozen=True)
class ResidueStage(BlockStage):
    """Embeds the residues of proteins, a file of proteins per task."""

    source: EncoderSource
    precision: str
    longest: int  # residues of the longest protein
    budget: int | None  # tokens per batch; None measures
    kept: Mapping[str, int]  # budgets that an earlier start found

    name, title = "residue_features", "Residue features"
    suffix = "safetensors"

    def open(self, device: Device) -> ResidueSession:
        """Load the model."""
        encoder = open_encoder(
            self.source,
            device.kind,
            self.precision,
            budget=self.budget or self.kept.get(budget_key(self.name, device)),
            truncation=self.longest,
        )
        facts = {**encoder.facts(), "precision": self.precision}
        return ResidueSession(encoder, self.source, "protein", self.disk, device, facts)


class ResidueSession(EmbeddingSession):
    """An ESM-2 on its device, which writes a vector per residue."""

    def prepare(self, task: Task) -> None:
        """Do nothing: a block is read in no time."""

    def compute(self, task: Task, report: ReportProgress) -> Callable[[], TaskResult]:
        """Embed the proteins of a block; what is returned checks and writes their features."""
        assert isinstance(self._encoder, Esm2Encoder)
        sequences = [sequence for _, sequence in read_fasta(task.inputs[0])]
        with self._computing:
            rows = self._encoder.encode_residues(sequences, report)
        keys = map(sequence_key, sequences)
        tensors = {k: row.half().contiguous() for k, row in zip(keys, rows, strict=True)}

        def write() -> TaskResult:
            refuse_changed_models(*self._source.files)
            if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
                raise ArithmeticError(f"features of {task.name} are not finite")
            content = save(tensors, {KEY: f"{self._source.sha256} {self.facts['precision']}"})
            output = self._disk.save(task.outputs[0], content, len(tensors))
            return TaskResult(task, (output,))

        return write


def feature_layout(folder: Path) -> BlockLayout:
    """Return the files of stored features."""
    return BlockLayout(folder.absolute(), "features", {}, kept=True)


def embed_residues(
    proteins: Sequence[AnnotatedProtein],
    model: str,
    folder: Path,
    machine: MachineSettings,
    show: Show,
    *,
    per_file: int = 64,
    force: bool = False,
    interruption: Interruption | None = None,
) -> int:
    """Compute features, or what is missing of them; return the files that this start computed.

    Equal sequences are embedded once. A file has the features of ``per_file`` proteins.
    """
    layout = feature_layout(folder)
    disk = Disk()
    devices = choose_devices(machine)
    precision = choose_precision("auto", devices)
    source = locate_esm2(model)
    check_writable(layout, force=force)
    unique = {protein.sequence: protein.accession for protein in proteins}
    order = sorted(unique, key=lambda sequence: (len(sequence), sequence))
    analysis = {
        "model": source.sha256,
        "precision": precision,
        "proteins per file": per_file,
        "proteins": hashlib.sha256("\n".join(order).encode()).hexdigest(),
    }
    pairs = [(unique[sequence], sequence) for sequence in order]
    blocks = [pairs[start : start + per_file] for start in range(0, len(pairs), per_file)]
    with locked(layout.lock):
        files = (layout.output(n, ResidueStage.suffix) for n in range(1, len(blocks) + 1))
        disk.sweep(layout.root, {path.name for path in files})  # other runs may share the folder
        state = RunState(str(layout.root), analysis)
        state = check_run(layout, disk, state, show, force=force)
        reading = ReadingStage(layout, disk, (), analysis, lambda: blocks)
        stage = ResidueStage(
            layout,
            disk,
            analysis,
            source,
            precision,
            longest=len(order[-1]),
            budget=machine.protein_batch,
            kept=state.budgets,
        )
        run = Run(layout, disk, [reading, stage], state, show)
        with closing(local_workers(devices, machine, interruption)) as workers:
            run.begin()
            run.once(reading)
            carry_out_tasks(run, stage, stage.tasks(run.ledger), workers)
        run.save_progress(is_finished=True)
    return run.computed[stage.name]
