"""One compiled block for all layers: the same embeddings, really used, nothing compiled late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from tests.gpu.reference_embeddings import REHEARSED, ROLES, SMALL, WIDE, Models, check, sequences
from tests.unit.encoders.small import quiet
from virnucpro.compute.threads import one_thread

pytestmark = pytest.mark.filterwarnings("default")  # those of torch are not ours

SQUARE = {"esm2": ["MKVLAAGI"] * 10, "dnabert-s": ["ACGACG"] * 8}  # as many sequences as tokens
KINDS = {"esm2": 2, "dnabert-s": 1}  # of batches: ESM-2 with and without padding


class Watched:
    """Inductor; counts what it compiles and how often that is called. On a CPU the graph is run."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.compiled = self.called = 0

    def __call__(self, graph, example) -> Callable[..., object]:
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx

        self.compiled += 1
        with config.patch(compile_threads=1):
            made: Any = compile_fx(graph, example) if self.device == "cuda" else graph

        def run(*inputs):
            self.called += 1
            return made(*inputs)

        return run


@pytest.fixture(autouse=True)
def _alone(device) -> Iterator[None]:
    """What is compiled on one number of threads is not used on another."""
    with one_thread():
        yield
    torch._dynamo.reset()


def batches_of_several(encoder, work) -> int:
    """A single sequence goes as it was written."""
    return sum(len(batch.indices) > 1 for batch in encoder.batches(work))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "fp8"])
@pytest.mark.parametrize("family", ROLES)
def test_every_batch_goes_through_the_compiled_block(models: Models, device, family, precision):
    budget, work = (1400 if family == "esm2" else 6), sequences(family)
    encoder = models.open(family, SMALL[family], device, precision, budget)
    stack: Any = encoder.network.blocks
    watched: Any = Watched(device)  # for the name of a backend
    stack.fuse(encoder.compile_examples(), backend=watched)
    kinds = KINDS[family] * (2 if precision == "fp8" else 1)  # 16 bit at the ends
    checks = 2 * kinds  # each is checked with its example and with a smaller batch
    assert (watched.compiled, watched.called) == (kinds, checks)
    rows = encoder.encode(work, quiet)
    assert watched.called == checks + batches_of_several(encoder, work) * len(stack)
    check(rows, models.exact(family, SMALL[family]), precision)
    encoder.set_budget(1400 if family == "esm2" else 8)
    (square,) = encoder.batches(SQUARE[family])
    assert square.inputs[0].shape[0] == square.inputs[0].shape[1]
    before = watched.called
    encoder.encode(SQUARE[family], quiet)
    assert watched.called == before + len(stack)
    assert watched.compiled == kinds


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp8"])
@pytest.mark.parametrize("family", [*reversed(ROLES)])  # the rehearsal takes the first
def test_compiled_as_predict_does_it(models: Models, device, family, precision):
    size = (WIDE if device == "cuda" else REHEARSED)[family]
    encoder, work = models.open(family, size, device, precision), sequences(family)
    encoder.compile()
    facts = encoder.facts()
    assert facts["compiled"], facts
    assert "compile_failed" not in facts
    graphs = counters["stats"]["unique_graphs"]
    for budget in (encoder.budget.amount, encoder.bounds.least, 3000, 40):
        encoder.set_budget(budget)
        rows = encoder.encode(work, quiet)
        check(rows, models.exact(family, size), precision)
    assert counters["stats"]["unique_graphs"] == graphs
