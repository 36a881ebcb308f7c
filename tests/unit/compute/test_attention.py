"""Attention in parts and at once, against the same in float64."""

from __future__ import annotations

import math

import pytest
import torch

from virnucpro.compute.layers import attend, attention_kernel, merge_heads, split_heads

SHAPES = {"a sequence": (7, 12, 120, 8), "at once": (2, 20, 400, 4)}
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 0.02}


def masks(b, heads, t):
    """Of each kind that the encoders use; the last keys of later sequences are padding."""
    real = torch.arange(t) < t - torch.arange(b)[:, None]
    bias = -torch.rand(1, heads, t, t)
    padded = bias.masked_fill(~real[:, None, None, :], -math.inf)
    return {"none": None, "padding": real[:, None, None, :], "bias": bias, "both": padded}


def exactly(q, k, v, mask):
    scores = q.double() @ k.double().transpose(2, 3) / q.shape[-1] ** 0.5
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    elif mask is not None:
        scores = scores + mask.double()
    return scores.softmax(-1) @ v.double()


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", ["none", "padding", "bias", "both"])
def test_attention(dtype, shape, kind):
    b, heads, t, d = shape
    random = torch.Generator().manual_seed(t)
    qkv = torch.randn(b, t, 3 * heads * d, generator=random).to(dtype)
    mask = masks(b, heads, t)[kind]
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(dtype)
    q, k, v = split_heads(qkv, heads)
    with torch.inference_mode():
        found = attend(q, k, v, mask)
    assert found.dtype == dtype
    expected = exactly(q, k, v, mask)
    assert float((found.double() - expected).abs().max()) < CLOSE[dtype]
    assert merge_heads(found).is_contiguous()


def test_its_name():
    has = torch.backends.cpu.get_cpu_capability() == "AVX512"
    for dtype in CLOSE:
        q = torch.empty(1, 20, 168, 24, dtype=dtype)
        parts = has and dtype == torch.bfloat16
        assert attention_kernel(q, None) == ("math" if parts else "flash_attention")
        long = torch.empty(1, 2, 2000, 24, dtype=dtype)
        assert attention_kernel(long, None) == "flash_attention"
