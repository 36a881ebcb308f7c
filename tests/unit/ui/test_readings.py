"""Readings where there is no driver, and where a value is missing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from tests.unit.ui.simulated import gpu
from virnucpro.contracts import Device
from virnucpro.ui.readings import GpuReading, NvmlReader, read_host


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
    driver = Driver()
    nvml = NvmlReader(driver)
    for _ in range(3):
        assert nvml.read(gpu(0)) == GpuReading(5, 9, None, 61, 612.0)
    assert nvml.read(gpu(1)) is None
    assert nvml.read(Device("cpu")) is None
    nvml.close()
    nvml.close()
    assert (driver.opened, driver.closed) == (1, 1)


def test_without_a_driver() -> None:
    driver = Driver(there=False)
    nvml = NvmlReader(driver)
    assert nvml.read(gpu(0)) is None
    assert nvml.read(gpu(0)) is None
    nvml.close()
    assert (driver.opened, driver.closed) == (1, 0)
    assert NvmlReader().read(Device("cuda", 0, uuid="GPU-of-no-machine")) is None


def test_a_host_without_proc(tmp_path: Path) -> None:
    assert read_host(tmp_path).memory > 1 << 20
