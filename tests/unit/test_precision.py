"""Which precision a run gets, and that the table of precisions is complete."""

from __future__ import annotations

import pytest
import torch

from virnucpro.compute.arithmetic import PREPARATIONS, torch_dtype
from virnucpro.contracts import Device
from virnucpro.errors import UsageError
from virnucpro.precision import PRECISIONS, choose_precision, measured_precisions

A100 = Device("cuda", 0, "A100", "GPU-aaaa", 80 << 30, (8, 0))
H200 = Device("cuda", 1, "H200", "GPU-bbbb", 141 << 30, (9, 0))
V100 = Device("cuda", 2, "V100", "GPU-cccc", 16 << 30, (7, 0))
P100 = Device("cuda", 3, "P100", "GPU-dddd", 16 << 30, (6, 0))
L4 = Device("cuda", 4, "L4", "GPU-eeee", 24 << 30, (8, 9))


@pytest.mark.parametrize(
    ("requested", "devices", "precision"),
    [
        ("auto", [A100, H200], "bf16"),
        ("auto", [A100, V100], "fp16"),
        ("auto", [A100, P100], "fp32"),
        ("auto", [Device("cpu")], "fp32"),
        ("bf16", [Device("cpu")], "bf16"),
        ("fp16", [V100], "fp16"),
        ("fp8", [H200, L4], "fp8"),
    ],
)
def test_precision(requested: str, devices: list[Device], precision: str) -> None:
    assert choose_precision(requested, devices) == precision


def test_a_precision_that_one_gpu_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="V100 has no fast bf16: use --precision fp32 or fp16"):
        choose_precision("bf16", [A100, V100])


@pytest.mark.parametrize(
    ("devices", "name"), [([H200, A100], "A100"), ([Device("cpu")], "a CPU"), ([V100], "V100")]
)
def test_fp8_is_refused_where_it_is_not_fast(devices: list[Device], name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} has no fast fp8: use --precision fp32 or"):
        choose_precision("fp8", devices)


def test_an_unknown_precision_is_refused_with_those_that_there_are() -> None:
    *names, last = PRECISIONS
    assert names[:3] == ["fp32", "bf16", "fp16"]
    with pytest.raises(UsageError, match=f"'int1': expected auto, {', '.join(names)} or {last}$"):
        choose_precision("int1", [A100])


@pytest.mark.parametrize(
    ("device", "names"),
    [
        (H200, ("fp32", "bf16", "fp16", "fp8")),
        (A100, ("fp32", "bf16", "fp16")),
        (V100, ("fp32", "fp16")),
        (Device("cpu"), ("fp32", "bf16")),
    ],
)
def test_what_a_benchmark_measures(device: Device, names: tuple[str, ...]) -> None:
    described = {"fp32", "bf16", "fp16", "fp8"}
    assert tuple(name for name in measured_precisions(device) if name in described) == names


@pytest.mark.parametrize("name", PRECISIONS)
def test_every_row_can_be_prepared(name: str) -> None:
    row = PRECISIONS[name]
    assert isinstance(torch_dtype(name), torch.dtype)
    assert row.linear_layers in {"cast", *PREPARATIONS}
