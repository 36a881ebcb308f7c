"""8-bit layers against the same in float64, and where they are put."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from benchmarks.models import random_encoder
from tests.unit.encoders.small import quiet
from virnucpro.compute.budget import random_sequences
from virnucpro.compute.layers import LOWEST_GELU, MOST, Fp8Linear, Linear, rounded, rounded_gelu
from virnucpro.encoders.registry import family_named

# Of either operand 4 bits are left: an error of 2^-4 at most, 2^-5.3 on average, in each product,
# much of which the sum takes out again.
CLOSE = 0.05


def filled(layer):
    random = torch.Generator().manual_seed(1)
    layer.requires_grad_(False)
    for parameter in layer.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=random))
        parameter /= parameter.shape[-1] ** 0.5
    return layer.to(torch.bfloat16)


def error(found, expected):
    assert found.dtype == torch.bfloat16
    assert found.shape == expected.shape
    return float((found.double() - expected).norm() / expected.norm())


@pytest.fixture
def x():
    drawn = torch.randn(3, 17, 64, generator=torch.Generator().manual_seed(0))
    drawn[0, 0] *= 1000  # each row has a scale of its own
    drawn[1, 1] *= 1e-4
    drawn[2, 2] = 0
    return drawn.to(torch.bfloat16)


def test_rows_are_rounded_to_three_bits_behind_the_first(x):
    rows, scale = rounded(x.flatten(0, 1))
    assert rows.dtype == torch.float8_e4m3fn
    assert (rows.float().abs().amax(1) == MOST).sum() == 3 * 17 - 1  # but the row of zeros
    back = rows.double() * scale.double()
    wrong = (back - x.flatten(0, 1).double()).abs() / back.abs().clamp(min=1e-2 * scale.double())
    assert float(wrong.max()) <= 2**-4


def test_what_follows_a_product(x):
    layer = filled(Linear(64, 96))
    small, other = Fp8Linear(layer), torch.randn(3, 17, 96).to(torch.bfloat16)
    plain = F.linear(x.double(), layer.weight.double(), layer.bias.double())
    assert error(small(x), plain) < CLOSE
    assert error(small.added(x, other), plain + other.double()) < CLOSE
    each = (small(x).double() - plain).norm(dim=-1) / plain.norm(dim=-1)
    assert float(each.max()) < 2 * CLOSE  # no row suffers from a larger one beside it
    assert small.weight.element_size() == 1


def test_gelu_between_two_layers(x):
    first, second = filled(Linear(64, 96)), filled(Linear(96, 64))
    hidden = F.gelu(F.linear(x.double(), first.weight.double(), first.bias.double()))
    plain = F.linear(hidden, second.weight.double(), second.bias.double())
    found = Fp8Linear(first).gelu_into(Fp8Linear(second), x, torch.zeros_like(x))
    assert error(found, plain) < 2 * CLOSE
    each = (found.double() - plain).norm(dim=-1) / plain.norm(dim=-1)
    assert float(each.max()) < 4 * CLOSE


def test_no_gelu_of_a_row_is_beyond_the_numbers_of_8_bits():
    """For every bf16 number as the largest of a row, and every number below it."""
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    finite = bits.view(torch.bfloat16).float()
    x = finite[finite.isfinite()].sort().values
    highest = F.gelu(x.double()).abs().cummax(0).values  # of all numbers up to this one
    assert bool((highest <= x.double().clamp(min=LOWEST_GELU)).all())
    # float32 rounds a few times on the way, and e4m3 takes all up to 464 for 448 (then comes NaN).
    assert MOST * (1 + 1e-5) < 464
    for top in (-3e38, -1.0, -0.7518, 0.0, 1e-30, 0.1, 0.17, 0.3, 1.0, 3.0, 1e38):
        row = x[x <= top][None]
        rows, scale = rounded_gelu(row)
        assert bool(rows.float().isfinite().all())
        exact = F.gelu(row.double())
        large = exact.abs() > float(exact.abs().max()) * 2**-10
        error = (rows.double() * scale.double() - exact).abs() / exact.abs()
        assert not bool(large.any()) or float(error[large].max()) <= 2**-4


def test_the_first_and_the_last_block_stay_in_16_bit():
    family, size = "esm2", "5x32x2"
    encoder = random_encoder(family, size, "cpu", "fp8")
    kinds = [{p.dtype for p in block.parameters()} for block in encoder.network.blocks]
    assert kinds[0] == kinds[-1] == {torch.bfloat16}
    assert all(torch.float8_e4m3fn in kind for kind in kinds[1:-1])
    plain = random_encoder(family, size, "cpu", "fp32")
    sequences = random_sequences(family_named(family).alphabet, [80], 6)
    one, other = (e.encode(sequences, quiet) for e in (encoder, plain))
    assert float(F.cosine_similarity(one, other).min()) > 0.99
    assert not torch.equal(one, other)
