"""Batch budgets: measured, halved, and what happens where memory runs out after all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.gpu.reference_embeddings import ROLES, SMALL, Models, check
from tests.unit.encoders.small import quiet
from virnucpro.compute.budget import measured_budget, peak_memory, random_sequences
from virnucpro.contracts import Device, Session, Task, TaskResult
from virnucpro.devices import visible_gpus
from virnucpro.encoders.registry import family_named, locate
from virnucpro.events import Event, Notice, WorkerReport
from virnucpro.io.fasta import fasta_bytes
from virnucpro.layout import Layout
from virnucpro.stages.embedding import EmbeddingStage
from virnucpro.store.disk import Disk
from virnucpro.store.features import load_features
from virnucpro.workers.processes import ProcessPool
from virnucpro.workers.scheduler import Workers

pytestmark = pytest.mark.filterwarnings("default")  # those of torch are not ours

MIB = 1 << 20
# Of these 4,096 tokens take 100 MiB or more, 32,768 tokens or 256 sequences more than a GiB.
LARGE = {"esm2": "3x2560x40", "dnabert-s": "3x1536x24"}


@dataclass(frozen=True)
class Tight(EmbeddingStage):
    """Its worker may take ``spare`` bytes more than the model has, on a GPU."""

    spare: int = 0

    def open(self, device: Device) -> Session:
        """As it is, but that the rest of the memory is out of reach."""
        session = super().open(device)
        if device.kind == "cuda":
            total = torch.cuda.get_device_properties(0).total_memory
            share = (torch.cuda.memory_reserved() + self.spare) / total
            torch.cuda.set_per_process_memory_fraction(share)
        return session

    def whole(self, proteins: list[str]) -> Task:
        """The task of a file with these proteins, which is written here."""
        path: Path = self.layout.split("protein", 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fasta_bytes((f"p{n}", text) for n, text in enumerate(proteins)))
        output = self.layout.features("protein", 1)
        receipt = output.with_name(output.name + ".done")
        return Task(self.name, self.version, (path,), (output,), receipt, count=len(proteins))


@pytest.mark.parametrize("family", ROLES)
def test_a_budget_is_measured(models: Models, device, family):
    size, precision = (LARGE, "fp16") if device == "cuda" else (SMALL, "fp32")
    encoder = models.open(family, size[family], device, precision)
    bounds = encoder.bounds
    if device == "cpu":
        assert encoder.budget.amount == bounds.cpu
        return
    possible = [bounds.least << k for k in range(9) if bounds.least << k <= bounds.most]

    def peak(amount: int) -> int:
        inputs = [tensor.to(device) for tensor in encoder.probe_batch(amount).inputs]
        with torch.inference_mode():
            return peak_memory(encoder.device, lambda: encoder.forward(*inputs))

    assert encoder.budget.found == "measured"
    assert encoder.budget.amount in possible
    if torch.cuda.mem_get_info()[0] > 32 << 30:
        assert encoder.budget.amount == bounds.most
    little = measured_budget(bounds, 512 * MIB, peak)
    assert little.amount in possible
    assert little.amount < bounds.most


def test_out_of_memory_in_a_worker_halves_its_batches(models: Models, device, tmp_path):
    proteins = random_sequences(
        family_named("esm2").alphabet, [166], 500 if device == "cuda" else 20
    )
    size = "2x256x4"
    exact = models.open("esm2", size, "cpu", "fp32").encode(proteins, quiet)
    source = locate(str(models.path("esm2", size)), "protein")
    layout = Layout(tmp_path, "x", 500)
    place = ("protein_embeddings", "", layout, Disk())
    stage = Tight(*place, "protein", source, "fp32", 1024, 32768, spare=128 * MIB)
    where = visible_gpus()[0] if device == "cuda" else Device("cpu")
    events: list[Event] = []
    pool = Workers(ProcessPool([where], tokenizer_threads=1))
    try:
        outcomes = list(pool.carry_out(stage, [stage.whole(proteins)], events.append))
    finally:
        pool.close()
    done = [outcome for outcome in outcomes if isinstance(outcome, TaskResult)]
    assert done == outcomes
    features = load_features(done[0].outputs[0].path, "protein")
    assert features.ids == [f"p{n}" for n in range(len(proteins))]
    check(features.data, exact, "fp32")
    (report,) = [event for event in events if isinstance(event, WorkerReport)]
    said = " ".join(event.message for event in events if isinstance(event, Notice))
    if device == "cuda":
        assert "times smaller" in said, said
        assert 0 < report.measured.peak_memory < 200 * MIB
