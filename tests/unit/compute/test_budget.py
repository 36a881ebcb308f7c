"""How batch budgets are found, kept and halved, and which batches are made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.encoders.small import fair_model, make_dnabert, open_path, quiet, save_fair
from virnucpro.compute.budget import (
    Bounds,
    Budget,
    best_budget,
    by_sequences,
    by_tokens,
    measured_budget,
    padded_length,
)
from virnucpro.contracts import Device
from virnucpro.encoders.registry import locate
from virnucpro.events import Event, WorkerReady
from virnucpro.layout import Layout
from virnucpro.run.recipe import keep_budget
from virnucpro.run.run import Run
from virnucpro.stages import embedding
from virnucpro.stages.embedding import EmbeddingStage, budget_key
from virnucpro.store.disk import Disk
from virnucpro.store.work import RunState, read_state

GIB = 2**30
TOKENS = Bounds("tokens", cpu=100, least=2048, most=32768)


@pytest.mark.parametrize(
    ("memory", "token", "fixed", "budget"),
    [
        (100 * GIB, 130_000, 0, 32768),  # more gains nothing
        (8 * GIB, 130_000, 0, 32768),
        (7 * GIB, 130_000, 0, 16384),  # 4.26 GB would be more than half
        (2 * GIB, 130_000, 0, 8192),
        (2 * GIB, 130_000, GIB // 8, 4096),
        (GIB // 2, 130_000, 0, 2048),  # over the share, but never less
        (GIB // 8, 130_000, 0, 2048),  # the probe itself does not fit
        (GIB, 0, GIB, 2048),
        (GIB, 0, 0, 32768),  # a device that reports nothing
    ],
)
def test_budget_follows_from_free_memory(memory, token, fixed, budget):
    """A batch takes ``fixed`` bytes and ``token`` for each token."""

    def peak(tokens: int) -> int:
        assert tokens <= 4096
        if fixed + token * tokens > memory:
            raise RuntimeError("CUDA error: out of memory")
        return fixed + token * tokens

    assert measured_budget(TOKENS, memory, peak) == Budget(budget, "measured")


def test_the_smallest_budget_that_suffices_is_recommended():
    noise = (5, 20, 20.3, 20.2)  # which is not worth the memory
    for speeds, budget in (((5, 10, 20), 4), (noise, 2), ((20, 20, 20), 1)):
        points = [{"budget": 2**n, "tokens_per_second": speed} for n, speed in enumerate(speeds)]
        assert best_budget(points) == budget


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "protein": save_fair(fair_model(), folder / "esm2_t2_test.pt"),
        "nucleotide": make_dnabert(folder / "dnabert"),
    }


@pytest.mark.parametrize(("molecule", "budget"), [("protein", 160), ("nucleotide", 4)])
def test_shrinking_ends_at_one_sequence(models, molecule, budget):
    encoder, largest, budgets = open_path(models[molecule], molecule, budget=budget), [], [budget]
    while True:
        encoder.encode(["A" * 38] * 4, quiet)
        largest.append(encoder.budget.largest)
        if not encoder.shrink():
            break
        budgets.append(encoder.facts()["budget"])
    assert largest == [4, 2, 1]
    assert budgets == [budget, budget // 2, budget // 4]


@pytest.mark.parametrize("method", ["encode", "encode_residues"])
def test_one_large_sequence_after_many_small_ones_is_not_halved(models, method):
    encoder = open_path(models["protein"], "protein", budget=160)
    for count in (4, 1):
        getattr(encoder, method)(["LAG"] * count, quiet)
        assert encoder.budget.largest == count
    assert not encoder.shrink()


@pytest.mark.parametrize("molecule", ["protein", "nucleotide"])
def test_samples_are_batches_of_about_the_budget(models, molecule):
    encoder = open_path(models[molecule], molecule)
    small, large = (encoder.probe_batch(n * encoder.bounds.least) for n in (1, 2))
    assert len(large.indices) == 2 * len(small.indices)
    size = small.tokens if encoder.bounds.unit == "tokens" else len(small.indices)
    assert 0.9 * encoder.bounds.least <= size <= encoder.bounds.least
    with torch.inference_mode():
        assert encoder.forward(*small.inputs).shape == (len(small.indices), encoder.dim)


def _stage(tmp_path: Path, path: Path, kept=None, budget=None) -> EmbeddingStage:
    source = locate(str(path), "protein")
    layout = Layout(tmp_path, "sample", 500)
    place = ("protein_embeddings", "", layout, Disk())
    stage = EmbeddingStage(*place, "protein", source, "fp32", 1024, budget)
    return replace(stage, kept=kept or {})


def test_a_kept_budget_is_used_for_its_kind_of_device_only(tmp_path, models):
    cpu = Device("cpu")
    kept = {
        budget_key("protein_embeddings", cpu): 1024,
        budget_key("nucleotide_embeddings", cpu): 3,
    }
    opened = _stage(tmp_path, models["protein"], kept).open(cpu).facts
    assert (opened["budget"], opened["found"]) == (1024, "kept")
    given = _stage(tmp_path, models["protein"], kept, budget=64).open(cpu).facts
    assert (given["budget"], given["found"]) == (64, "given")
    other = Device("cpu", name="another")
    assert _stage(tmp_path, models["protein"], kept).open(other).facts["budget"] == 512


GPU = Device("cuda", 0, "GPU A", "GPU-1", 24 * GIB)
TWIN = Device("cuda", 1, "GPU A", "GPU-2", 24 * GIB)
LARGE = Device("cuda", 2, "GPU A", "GPU-3", 80 * GIB)


def _ready(worker: int, device: Device, budget: int, found: str = "measured") -> WorkerReady:
    return WorkerReady(
        worker, device, "protein_embeddings", 1.0, {"budget": budget, "found": found}
    )


def test_measured_budgets_are_kept_one_a_kind_of_device(tmp_path):
    seen: list[Event] = []
    run = Run(Layout(tmp_path, "in", 500), Disk(), [], RunState("in.fa", {}), seen.append)
    small, large = budget_key("protein_embeddings", GPU), budget_key("protein_embeddings", LARGE)
    keep_budget([run], seen.append, _ready(0, GPU, 8192))
    assert read_state(run.layout).budgets == {small: 8192}
    keep_budget(
        [run], seen.append, _ready(1, TWIN, 4096)
    )  # something else is on it: what fits both
    keep_budget([run], seen.append, _ready(0, GPU, 8192))
    keep_budget([run], seen.append, _ready(2, LARGE, 32768))
    keep_budget([run], seen.append, _ready(2, LARGE, 64, "given"))
    assert read_state(run.layout).budgets == {small: 4096, large: 32768} == run.state.budgets
    assert len(seen) == 5


@pytest.mark.parametrize(
    ("compile", "sequences", "kind", "expected"),
    [
        ("auto", 10**12, "cuda", True),
        ("auto", 10, "cuda", False),
        ("always", 10, "cuda", True),
        ("never", 10**12, "cuda", False),
        ("auto", 10**12, "cpu", False),  # fuses by itself
    ],
)
def test_what_is_compiled(tmp_path, models, monkeypatch, compile, sequences, kind, expected):
    """With everything on the CPU in truth, and the model opened as it is there."""
    asked = []
    opened = open_path(models["protein"])
    opened.device = torch.device(kind)
    monkeypatch.setattr(type(opened), "compile", lambda self: asked.append(self))
    monkeypatch.setattr(embedding, "open_encoder", lambda *_, **__: opened)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    stage = replace(_stage(tmp_path, models["protein"]), compile=compile)
    replace(stage, sequences=sequences).open(Device(kind, 0))
    assert asked == ([opened] if expected else [])


LENGTHS = st.lists(st.integers(1, 300), max_size=80)


@pytest.mark.parametrize(
    ("lengths", "budget", "batches"),
    [
        ([], 10, []),
        ([5], 10, [[0]]),
        ([50], 10, [[0]]),  # longer than the budget: alone
        ([5, 5, 5], 10, [[0], [1, 2]]),
        ([5] * 7, 15, [[0, 1], [2, 3], [4, 5, 6]]),  # of like size, not 3, 3 and 1
        ([5, 5, 5], 15, [[0, 1, 2]]),
        ([3, 9, 3, 9], 18, [[1, 3], [0, 2]]),  # longest first, equal lengths together
        ([10, 9, 8, 7], 40, [[0, 1, 2], [3]]),  # strays: at most a fifth of a row is padding
        ([10, 9, 8, 8], 20, [[0], [1], [2, 3]]),  # one of two is half a batch
        ([10, 9, 9, 9], 30, [[0], [1, 2, 3]]),
        ([10, 4], 40, [[0], [1]]),  # too unlike
    ],
)
def test_by_tokens(lengths, budget, batches):
    assert by_tokens(lengths, budget) == batches


@pytest.mark.parametrize(
    ("lengths", "sequences", "area", "batches"),
    [
        ([], 4, 10**6, []),
        ([12, 16, 9, 16, 17], 4, 10**6, [[4, 1, 3, 0], [2]]),  # longest first, neighbours together
        ([8, 8, 8, 8, 8], 2, 10**6, [[0, 1], [2, 3], [4]]),
        ([100, 60, 59, 36, 35], 4, 10**6, [[0, 1], [2, 3], [4]]),  # none under 0.6 of the longest
        ([16, 15, 13], 4, 2 * 256, [[0, 1], [2]]),  # the area bounds a batch
        ([9, 9, 9], 4, 2 * 256, [[0, 1], [2]]),  # as it is padded
        ([64], 4, 1, [[0]]),  # but one always goes
    ],
)
def test_by_sequences(lengths, sequences, area, batches):
    assert by_sequences(lengths, sequences, step=8, area=area) == batches


def _check(lengths, batches, least, fits):
    """Check that everything is there once, in batches of like lengths that fit."""
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or fits(len(batch), longest)
        assert min(lengths[i] for i in batch) >= least * longest
    longest = [lengths[batch[0]] for batch in batches]
    assert longest == sorted(longest, reverse=True)


@given(LENGTHS, st.integers(1, 2000), st.sampled_from([10**5, 10**7]))
def test_batches_hold_everything_once_within_the_limits(lengths, most, area):
    _check(lengths, by_tokens(lengths, most), 0.8, lambda n, longest: n * longest <= most)
    _check(
        lengths,
        by_sequences(lengths, most, step=8, area=area),
        0.6,
        lambda n, longest: n <= most and n * padded_length(longest, 8) ** 2 <= area,
    )
