"""Batch budgets: measured, halved, and what happens where memory runs out after all."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.limited_memory import Tight
from tests.gpu.reference_embeddings import ROLES, SMALL, Models, check, sequences
from tests.unit.encoders.small import quiet
from virnucpro.benchmark.budget_curve import random_sequences
from virnucpro.compute.budget import CudaMemory, find_budget
from virnucpro.contracts import Device, TaskResult
from virnucpro.devices import visible_gpus
from virnucpro.encoders.registry import locate, random_encoder
from virnucpro.events import Notice, WorkerReport
from virnucpro.executors.executor import Executor
from virnucpro.executors.processes import ProcessPool
from virnucpro.layout import RunLayout
from virnucpro.store.disk import Disk
from virnucpro.store.features import load_features

pytestmark = pytest.mark.filterwarnings("default")  # those of torch are not ours

MIB = 1 << 20
# Of these 4,096 tokens take 100 MiB or more, 32,768 tokens or 256 sequences more than a GiB.
LARGE = {"esm2": "3x2560x40", "dnabert-s": "3x1536x24"}


class Little(CudaMemory):
    """A GPU that says that there is little left."""

    def free(self) -> int:
        return 512 * MIB


@pytest.mark.parametrize("family", ROLES)
def test_a_budget_is_measured(gpu, family):
    encoder = random_encoder(family, LARGE[family], "cuda", "bf16", budget=None, truncation=1024)
    bounds, found = encoder.bounds, encoder.budget
    assert found.found == encoder.facts()["found"] == "measured"
    possible = [bounds.least << k for k in range(9) if bounds.least << k <= bounds.most]
    assert found.amount in possible
    if encoder.device.type == "cuda" and torch.cuda.mem_get_info()[0] > 32 << 30:
        assert found.amount == bounds.most
    little = find_budget(bounds, None, Little(encoder.device), encoder._try)
    assert little.amount in possible
    assert little.amount < bounds.most


@pytest.mark.parametrize("family", ROLES)
def test_halved_batches_give_the_same(models: Models, device, family):
    encoder, work = models.open(family, SMALL[family], device, "fp32"), sequences(family)
    whole = encoder.encode(work, quiet)
    before = encoder.budget.amount
    assert encoder.shrink()
    assert encoder.budget.amount == before // 2
    check(encoder.encode(work, quiet), whole, "fp32")
    while encoder.shrink():
        encoder.encode(work[:6], quiet)
    assert encoder.budget.largest == 1


def test_out_of_memory_in_a_worker_halves_its_batches(models: Models, device, tmp_path):
    proteins = random_sequences("esm2", [166], 500)
    size = "2x256x4"
    exact = models.open("esm2", size, "cpu", "fp32").encode(proteins, quiet)
    source = locate(str(models.path("esm2", size)), "protein")
    layout = RunLayout(tmp_path, "x", 500)
    stage = Tight(layout, Disk(), "protein", source, "fp32", 1024, 32768, spare=128 * MIB)
    where = visible_gpus()[0] if device == "cuda" else Device("cpu")
    events = []
    pool = Executor(ProcessPool([where], tokenizer_threads=1), host_threads=1)
    try:
        outcomes = list(pool.run(stage, stage.split(stage.whole(proteins)), events.append))
    finally:
        pool.close()
    assert all(isinstance(outcome, TaskResult) for outcome in outcomes), outcomes
    parts = sorted(outcome.outputs[0].path for outcome in outcomes)
    loaded = [load_features(path, "protein") for path in parts]
    assert [name for part in loaded for name in part.ids] == [f"p{n}" for n in range(500)]
    check(torch.cat([part.data for part in loaded]), exact, "fp32")
    (report,) = [event for event in events if isinstance(event, WorkerReport)]
    said = " ".join(event.message for event in events if isinstance(event, Notice))
    if device == "cuda":
        assert "times smaller" in said, said
        assert 0 < report.figures.peak_memory < 200 * MIB
