"""Which precision a run gets, and that the table of precisions is complete."""

from pathlib import Path

import pytest

from tests.unit.test_devices import A100, H200, V100
from virnucpro.contracts import Device
from virnucpro.errors import UsageError
from virnucpro.precision import choose_precision

ROOT = Path(__file__).parents[2]

P100 = Device("cuda", name="P100", capability=(6, 0))
L4 = Device("cuda", name="L4", capability=(8, 9))


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
def test_precision(requested, devices, chosen):
    assert choose_precision(requested, devices) == chosen


@pytest.mark.parametrize(
    ("requested", "device", "others"),
    [
        ("bf16", V100, "V100 .*fp32 or fp16,"),
        ("fp8", Device("cpu"), "a CPU .*fp32 or bf16 or fp16"),
    ],
)
def test_a_precision_that_one_device_lacks_is_refused(requested, device, others):
    with pytest.raises(UsageError, match=others):
        choose_precision(requested, [H200, device])
