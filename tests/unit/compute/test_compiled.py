"""One compiled block for all layers; that every batch goes through it is in ``tests/gpu``."""

from __future__ import annotations

import math
from contextlib import contextmanager

import pytest
import torch
import torch._inductor

from benchmarks.models import random_encoder
from tests.unit.encoders.small import quiet
from virnucpro.compute.budget import random_sequences
from virnucpro.compute.compiled import BlockCalls, warm_compiler
from virnucpro.compute.threads import one_thread
from virnucpro.encoders.registry import family_named

SIZES = {"esm2": "4x32x2", "dnabert-s": "4x48x4"}
KINDS = {"esm2": 2, "dnabert-s": 1}  # of batches: ESM-2 with and without padding


class Watched:
    """Counts what a compiler compiles and how often that is called. By default the graph is run."""

    def __init__(self, compiler=lambda graph, example: graph) -> None:
        self.compiled = self.called = 0
        self._compiler = compiler

    def __call__(self, graph, example):
        made = self._compiler(graph, example)
        self.compiled += 1

        def run(*inputs):
            self.called += 1
            return made(*inputs)

        return run


@pytest.fixture(autouse=True)
def _alone():
    """What is compiled on one number of threads is not used on another."""
    with one_thread():
        yield
    torch._dynamo.reset()


def opened(family, precision="fp32", budget=None):
    budget = budget or (500 if family == "esm2" else 7)
    return random_encoder(family, SIZES[family], "cpu", precision, budget=budget)


def difference(one, other):
    return float((one - other).abs().max())


@contextmanager
def torch_setting(name, value):
    """Change a global setting of matrix products until the end of the context."""
    before = getattr(torch.backends.cuda.matmul, name)
    setattr(torch.backends.cuda.matmul, name, value)
    try:
        yield
    finally:
        setattr(torch.backends.cuda.matmul, name, before)


@pytest.mark.parametrize(
    ("family", "setting", "value"),
    [("dnabert-s", "allow_tf32", True), ("esm2", "allow_bf16_reduced_precision_reduction", False)],
)
def test_calls_without_the_compiled_code_are_counted(family, setting, value):
    encoder, compiler = opened(family), Watched()
    stack, sequences = (
        encoder.network.blocks,
        random_sequences(family_named(family).alphabet, [60], 24),
    )
    stack.fuse(encoder.compile_examples(), backend=compiler)
    checks = compiler.called
    plain = encoder.encode(sequences, quiet)
    assert difference(plain, opened(family).encode(sequences, quiet)) < 1e-5
    batches = encoder.batches(sequences)
    per_call = sum(len(batch.indices) > 1 for batch in batches) * len(stack)
    assert encoder.network.blocks.calls == BlockCalls(compiled=per_call)
    assert compiler.called == checks + per_call
    with torch_setting(setting, value):
        changed = encoder.encode(sequences, quiet)
    calls = encoder.network.blocks.calls
    assert (calls.compiled, calls.uncompiled) == (per_call, per_call)
    assert compiler.called == checks + per_call
    assert difference(changed, plain) < 1e-5
    encoder.encode(sequences, quiet)
    assert encoder.network.blocks.calls.compiled == 2 * per_call


@pytest.mark.parametrize(
    ("family", "budget"),
    [("esm2", 2048), ("esm2", 32768), ("esm2", 168 * 168), ("dnabert-s", 16), ("dnabert-s", 256)],
)
def test_blocks_are_compiled_for_full_batches(family, budget):
    encoder = opened(family, budget=budget)
    for example in encoder.compile_examples():
        sequences, tokens, _ = example.inputs[0].shape
        size = sequences * tokens if family == "esm2" else sequences
        assert 0.9 * budget <= size <= budget + tokens
        assert sequences != tokens


@pytest.mark.slow  # needs a C compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about itself
def test_the_compiler_itself(monkeypatch, tmp_path):
    """Inductor, as on a GPU; what it makes gives the same embeddings."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    warm_compiler(torch.device("cpu"))  # as a worker does before it has a model
    encoder = opened("esm2")
    sequences = random_sequences(family_named("esm2").alphabet, [40], 12)
    plain = encoder.encode(sequences, quiet)
    encoder.compile()
    facts = encoder.facts()
    assert facts["compiled"], facts
    assert facts["compile_seconds"] > 0
    assert "compile_failed" not in facts
    fused = encoder.encode(sequences, quiet)
    assert 0 < difference(fused, plain) < 1e-5


@pytest.mark.parametrize("change", [lambda x: x.roll(1, -1), lambda x: x * math.nan])
def test_a_compiler_that_makes_something_else_is_found_out(change):
    def wrong(graph, example):
        return lambda *inputs: (change(*graph(*inputs)),)

    encoder = opened("dnabert-s")
    with pytest.raises(RuntimeError, match=r"unlike the block.*: cosine (-?0|nan)"):
        encoder.network.blocks.fuse(encoder.compile_examples(), backend=wrong)
    assert not encoder.network.blocks.fused


@pytest.mark.parametrize(
    "error", [RuntimeError("no gcc\nand more"), OSError("no gcc"), AssertionError("no gcc")]
)
def test_without_a_compiler_the_model_stays_as_it_was(monkeypatch, error):
    def missing(*_, **__):
        raise error

    encoder = opened("dnabert-s")
    sequences = random_sequences(family_named("dnabert-s").alphabet, [60], 3)
    plain = encoder.encode(sequences, quiet)
    monkeypatch.setattr(torch, "compile", missing)
    encoder.compile()
    facts = encoder.facts()
    assert facts["compile_failed"] == f"{type(error).__name__}: no gcc"
    assert facts["compiled"] is False
    assert torch.equal(encoder.encode(sequences, quiet), plain)


def test_code_that_serves_one_size_only_is_found_out(monkeypatch):
    monkeypatch.setattr(torch._dynamo, "mark_dynamic", lambda *_: None)
    encoder = opened("dnabert-s")
    with pytest.raises(RuntimeError, match="recompil"):
        encoder.network.blocks.fuse(encoder.compile_examples(), backend=Watched())
    assert not encoder.network.blocks.fused
