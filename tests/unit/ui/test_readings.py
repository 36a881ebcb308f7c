"""Readings where there is no driver, and where a value is missing."""

from __future__ import annotations

from types import SimpleNamespace

from tests.unit.ui.simulated import gpu
from virnucpro.contracts import Device
from virnucpro.devices import GpuReader, GpuReading


class Driver:
    """Stands for the vendor's library: it knows one GPU, and not all about it."""

    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def __init__(self, *, there: bool = True) -> None:
        self.there, self.opened, self.closed = there, 0, 0

    def nvmlInit(self) -> None:
        self.opened += 1
        if not self.there:
            raise self.NVMLError

    def nvmlShutdown(self) -> None:
        self.closed += 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-0":
            raise self.NVMLError
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(used=5, total=9)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        raise self.NVMLError  # as on a MIG slice

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 612_000

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 61


def test_what_is_missing_is_none() -> None:
    reading = GpuReading(5, 9, None, 61, 612.0)
    for there, expected in ((True, reading), (False, None)):
        driver = Driver(there=there)
        reader = GpuReader(driver)
        for device, seen in (
            (gpu(0), expected),
            (gpu(0), expected),
            (gpu(1), None),
            (Device("cpu"), None),
        ):
            assert reader.read(device) == seen
        reader.close()
        reader.close()
        assert (driver.opened, driver.closed) == (1, int(there))
    assert GpuReader().read(Device("cuda", 0, uuid="GPU-of-no-machine")) is None
