"""Readings where there is no driver, and where a value is missing."""

from __future__ import annotations

from types import SimpleNamespace

from tests.unit.ui.simulated import gpu
from virnucpro.contracts import Device
from virnucpro.devices import GpuReader, GpuReading


class DriverError(Exception):
    """What the vendor's library raises."""


def refuse(*_: object) -> None:
    raise DriverError


def driver(calls: list[str], *, there: bool) -> SimpleNamespace:
    """The vendor's library; it knows one GPU, and not all about it."""
    return SimpleNamespace(
        NVMLError=DriverError,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: calls.append("open") or there or refuse(),
        nvmlShutdown=lambda: calls.append("close"),
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid if uuid == "GPU-0" else refuse(),
        nvmlDeviceGetMemoryInfo=lambda gpu: SimpleNamespace(used=5, total=9),
        nvmlDeviceGetUtilizationRates=refuse,  # as on a MIG slice
        nvmlDeviceGetPowerUsage=lambda gpu: 612_000,
        nvmlDeviceGetTemperature=lambda gpu, sensor: 61,
    )


def test_what_is_missing_is_none() -> None:
    reading = GpuReading(5, 9, None, 61, 612.0)
    for there, expected in ((True, reading), (False, None)):
        calls: list[str] = []
        reader = GpuReader(driver(calls, there=there))
        for device, seen in (
            (gpu(0), expected),
            (gpu(0), expected),
            (gpu(1), None),
            (Device("cpu"), None),
        ):
            assert reader.read(device) == seen
        assert calls == ["open"]
    assert GpuReader().read(Device("cuda", 0, uuid="GPU-of-no-machine")) is None
