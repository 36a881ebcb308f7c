"""Linear layers with what follows them, against the same in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from virnucpro.compute.layers import GatedLinear, Linear, fuses

# A gate rounds four numbers, each by half of eps: two products, GELU (which makes the first error up
# to 1.3 times as large) and what they make. In fp32, the order of up to 480 terms counts for more.
CLOSE = {
    dtype: max(1e-5, 4.5 * torch.finfo(dtype).eps / 2)
    for dtype in (torch.float32, torch.bfloat16, torch.float16)
}
SHAPES = [(1, 1, 24), (3, 17, 40), (2, 168, 480)]


def filled(layer, dtype):
    random = torch.Generator().manual_seed(1)
    layer.requires_grad_(False)
    for parameter in layer.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=random))
        parameter /= parameter.shape[-1] ** 0.5
    return layer.to(dtype)


def difference(found, expected):
    assert found.shape == expected.shape
    return float(((found.double() - expected).abs() / (1 + expected.abs())).max())


@pytest.fixture(autouse=True)
def same_numbers():
    torch.manual_seed(0)


@pytest.fixture(params=[True, False], ids=["onednn", "plain"])
def fused(request):
    """With oneDNN where this processor has it, and without."""
    before = torch.backends.mkldnn.enabled
    torch._C._set_mkldnn_enabled(request.param)  # ``flags`` also sets TF32, and warns of it
    with torch.inference_mode():
        yield request.param
    torch._C._set_mkldnn_enabled(before)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_follows_a_product(fused, dtype, shape):
    x, other = torch.randn(shape).to(dtype), torch.randn(*shape[:-1], 72).to(dtype)
    layer = filled(Linear(shape[-1], 72), dtype)
    plain = F.linear(x.double(), layer.weight.double(), layer.bias.double())
    assert difference(layer(x), plain) < CLOSE[dtype]
    assert difference(layer.gelu(x), F.gelu(plain)) < CLOSE[dtype]
    assert difference(layer.added(x, other), plain + other.double()) < CLOSE[dtype]
    assert layer(x).dtype == dtype


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_gate(fused, dtype, shape):
    x = torch.randn(shape).to(dtype)
    layer = filled(GatedLinear(shape[-1], 72), dtype)
    gate, value = F.linear(x.double(), layer.weight.double()).chunk(2, dim=-1)
    assert difference(layer(x), F.gelu(gate) * value) < CLOSE[dtype]


def test_who_multiplies(fused):
    has = fused and torch.backends.cpu.get_cpu_capability() == "AVX512"
    assert fuses(torch.ones(1)) == has
    assert fuses(torch.ones(1, dtype=torch.bfloat16)) == has
    assert not fuses(torch.ones(1, dtype=torch.float16))
    assert not fuses(torch.ones(1, device="meta"))


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("shape", SHAPES)
def test_packed_weights_are_the_same_numbers(fused, dtype, shape):
    x, other = torch.randn(shape).to(dtype), torch.randn(*shape[:-1], 72).to(dtype)
    layer, gate = filled(Linear(shape[-1], 72), dtype), filled(GatedLinear(shape[-1], 72), dtype)

    def everything():
        return [layer(x), layer.gelu(x), layer.added(x, other), gate(x)]

    plain, weight = [found.double() for found in everything()], layer.weight
    layer.pack()
    gate.pack()
    assert layer.weight.is_mkldnn == gate.weight.is_mkldnn == fuses(x)
    assert sum(p.numel() for p in gate.parameters()) == 2 * 72 * shape[-1]
    for found, expected in zip(everything(), plain, strict=True):
        assert difference(found, expected) < CLOSE[dtype]
    assert torch.equal(layer.weight.to_dense() if fuses(x) else layer.weight, weight)
