"""Which precision a run gets, and that the table of precisions is complete."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from virnucpro.contracts import Device
from virnucpro.errors import UsageError
from virnucpro.precision import choose_precision

ROOT = Path(__file__).parents[2]

A100 = Device("cuda", 0, "A100", "GPU-aaaa", 80 << 30, (8, 0))
H200 = Device("cuda", 1, "H200", "GPU-bbbb", 141 << 30, (9, 0))
V100 = Device("cuda", 2, "V100", "GPU-cccc", 16 << 30, (7, 0))
P100 = Device("cuda", 3, "P100", "GPU-dddd", 16 << 30, (6, 0))
L4 = Device("cuda", 4, "L4", "GPU-eeee", 24 << 30, (8, 9))


@pytest.mark.parametrize(
    ("requested", "devices", "chosen"),
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
def test_precision(requested: str, devices: list[Device], chosen: str) -> None:
    assert choose_precision(requested, devices) == chosen


def test_a_precision_that_one_gpu_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="V100 has no fast bf16: use --precision fp32 or fp16"):
        choose_precision("bf16", [A100, V100])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its instructions cannot be masked")
def test_masked_instructions_are_not_used() -> None:
    """As on a processor with AVX2 alone, whatever this one has."""
    code = "from virnucpro.precision import cpu_has_bf16; print(cpu_has_bf16())"
    masked = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=masked, cwd=ROOT, capture_output=True, check=True
    )
    assert done.stdout.strip() == b"False"
