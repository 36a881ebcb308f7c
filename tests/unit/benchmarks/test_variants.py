"""Other ways to compute a block: each is the same function, as far as it says so."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from benchmarks.gpu.variants import VARIANTS, compile_changed, rotate_without_masks, sigmoid_gelu
from benchmarks.models import random_encoder, sequences_for
from tests.unit.encoders.small import quiet
from virnucpro.compute.threads import one_thread
from virnucpro.encoders.esm2_network import rotary_frequencies, rotary_tables, rotate


@pytest.fixture(autouse=True)
def _alone():
    """What is compiled on one number of threads is not used on another."""
    with one_thread():
        yield
    torch._dynamo.reset()


def test_gelu_with_one_exponential_is_exact_to_less_than_a_rounding_of_16_bits():
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    x = torch.cat([bits[bits.isfinite()], torch.linspace(-10, 10, 100_001)])
    # The product of 0.5 and the largest numbers of bf16 is not computed in float32 by torch's own.
    assert float((sigmoid_gelu(x).double() - F.gelu(x.double())).abs().max()) < 2.6e-5 * 1.01


def test_rotary_positions_without_masks_are_the_same():
    x = torch.randn(2, 9, 2, 3, 8, generator=torch.Generator().manual_seed(0))
    tables = rotary_tables(rotary_frequencies(4), 9, torch.device("cpu"))
    cos, sin = (table[None, :, None, None] for table in tables)
    for dtype in (torch.float32, torch.bfloat16):
        plain, other = (f(x.to(dtype), cos, sin) for f in (rotate, rotate_without_masks))
        assert other.dtype == dtype
        assert float((plain - other).abs().max()) <= 1e-6


@pytest.mark.parametrize(
    ("name", "family"),
    [(n, f) for n, (kinds, _) in VARIANTS.items() for f, p in kinds if p == "bf16"],
)
def test_a_variant_is_compiled_and_computes_the_same(name, family):
    _, change = VARIANTS[name]
    size, budget = ("3x32x2", 500) if family == "esm2" else ("3x48x4", 7)
    plain, changed = (
        random_encoder(family, size, "cpu", "fp32", budget=budget, truncation=99) for _ in range(2)
    )
    sequences = sequences_for(family, [40], 12)
    expected = plain.encode(sequences, quiet)
    compile_changed(changed, changed.network.blocks, change)
    with change(changed.network.blocks):
        rows = changed.encode(sequences, quiet)
    assert changed.block_calls.compiled > 0
    assert changed.block_calls.uncompiled == 0, changed.block_calls.reason
    allowed = 1e-3 if "tanh" in name else 1e-4
    assert float((rows - expected).abs().max()) < allowed
    if "GELU" in name or "rotary" in name:
        assert not torch.equal(rows, expected)  # it changes something here
