"""One compiled block for all layers: the same embeddings, really used, nothing compiled late."""

from __future__ import annotations

from typing import Any

import pytest
from torch._dynamo.utils import counters

from tests.gpu.reference_embeddings import (
    COMPUTED,
    REHEARSED,
    SMALL,
    WIDE,
    Models,
    check,
    sequences,
)
from tests.unit.compute.test_compiled import KINDS, Watched, _alone  # noqa: F401 - a fixture
from tests.unit.encoders.small import quiet

pytestmark = pytest.mark.filterwarnings("default")  # those of torch are not ours

SQUARE = {"esm2": ["MKVLAAGI"] * 10, "dnabert-s": ["ACGACG"] * 8}  # as many sequences as tokens


def inductor(graph, example) -> Any:
    """Compile a graph as for a GPU."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    with config.patch(compile_threads=1):
        return compile_fx(graph, example)


# The rehearsal takes the first: of fp8, there is most to compile.
FP8_FIRST = sorted(COMPUTED, key=lambda case: case[1] != "fp8")


def batches_of_several(encoder, work) -> int:
    """A single sequence goes as it was written."""
    return sum(len(batch.indices) > 1 for batch in encoder.batches(work))


@pytest.mark.parametrize(("family", "precision"), FP8_FIRST)
def test_every_batch_goes_through_the_compiled_block(models: Models, device, family, precision):
    budget, work = (1400 if family == "esm2" else 6), sequences(family)
    encoder = models.open(family, SMALL[family], device, precision, budget)
    stack: Any = encoder.network.blocks
    watched: Any = Watched(inductor) if device == "cuda" else Watched()
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


# The rehearsal takes the first.
@pytest.mark.parametrize(
    ("family", "precision"),
    [("dnabert-s", "fp32"), ("dnabert-s", "bf16")] + [("esm2", p) for p in ("fp32", "bf16", "fp8")],
)
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
