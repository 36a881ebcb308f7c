"""Embeddings on the device against the same models in fp32 on the CPU."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.reference_embeddings import (
    COMPUTED,
    OTHER,
    REHEARSED,
    SMALL,
    WIDE,
    Models,
    check,
    sequences,
)
from tests.unit.encoders.small import quiet
from virnucpro.precision import PRECISIONS

pytestmark = pytest.mark.filterwarnings("default")  # those of torch are not ours


@pytest.mark.parametrize("sizes", [SMALL, OTHER, WIDE], ids=["heads of 64", "heads of 32", "wide"])
@pytest.mark.parametrize(("family", "precision"), COMPUTED)
def test_those_of_the_cpu(models: Models, device, family, sizes, precision):
    size = (sizes if device == "cuda" or sizes != WIDE else REHEARSED)[family]
    encoder = models.open(family, size, device, precision)
    rows = encoder.encode(sequences(family), quiet)
    assert torch.get_float32_matmul_precision() == "highest"  # no TF32
    check(rows, models.exact(family, size), precision)


@pytest.mark.parametrize(("family", "precision"), COMPUTED)
def test_alone_in_a_batch_and_with_another_budget(models: Models, device, family, precision):
    encoder, work = models.open(family, SMALL[family], device, precision), sequences(family)
    together = encoder.encode(work, quiet)
    alone = torch.cat([encoder.encode([one], quiet) for one in work[::5]])
    check(alone, together[::5], precision)
    encoder.set_budget(700 if family == "esm2" else 5)
    check(encoder.encode(work, quiet), together, precision)


@pytest.mark.parametrize(("family", "precision"), [case for case in COMPUTED if case[1] != "fp32"])
def test_attention_is_fused(models: Models, device, family, precision):
    expected = {"esm2": "flash_attention", "dnabert-s": "efficient_attention"}
    encoder = models.open(family, SMALL[family], device, precision)
    kernels = [expected[family]] if device == "cuda" else ["math", "flash_attention"]
    if device == "cuda" and torch.cuda.get_device_capability() < PRECISIONS["bf16"].capability:
        kernels = ["efficient_attention"]  # the other needs Ampere
    assert encoder.facts()["attention"] in kernels
