"""Readings where there is no driver, and where a value is missing."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from tests.unit.ui.simulated import gpu
from virnucpro.contracts import Device
from virnucpro.devices import read_gpu


class DriverError(Exception):
    """What the vendor's library raises."""


def refuse(*_: object) -> None:
    raise DriverError


def driver(*, there: bool) -> SimpleNamespace:
    """The vendor's library; it knows one GPU, and not all about it."""
    return SimpleNamespace(
        NVMLError=DriverError,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: there or refuse(),
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid if there and uuid == "GPU-0" else refuse(),
        nvmlDeviceGetMemoryInfo=lambda gpu: SimpleNamespace(used=5, total=9),
        nvmlDeviceGetUtilizationRates=refuse,  # as on a MIG slice
        nvmlDeviceGetPowerUsage=lambda gpu: 612_000,
        nvmlDeviceGetTemperature=lambda gpu, sensor: 61,
    )


def test_what_is_missing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_gpu(Device("cuda", 0, uuid="GPU-of-no-machine")) is None
    reading = (5, 9, None, 61, 612.0)
    for there, expected in ((True, reading), (False, None)):
        monkeypatch.setitem(sys.modules, "pynvml", driver(there=there))
        assert read_gpu(gpu(0)) == expected
        assert read_gpu(gpu(1)) is None
        assert read_gpu(Device("cpu")) is None
