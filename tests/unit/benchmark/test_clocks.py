"""Clock, power and throttle reasons beside a figure, read from a driver that is made up."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch

from virnucpro.benchmark import clocks
from virnucpro.benchmark.clocks import ClockReading, ClockSampler, Interval

UNKNOWN = dict.fromkeys(
    ("sm_clock_mhz", "least_sm_clock_mhz", "power_watts", "throttle_reasons"), None
)


class DriverError(Exception):
    """What the driver raises for a value that it does not have."""


class Driver:
    """The part of ``pynvml`` that is used. It does not know the power."""

    NVMLError = DriverError
    NVML_CLOCK_SM = 1

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        assert uuid == "GPU-1234"
        return uuid

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        raise DriverError

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return 0x4 | 0x20

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        return 1980


def test_a_gpu_is_read_while_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "READ_SECONDS", 0.001)
    properties = SimpleNamespace(uuid="1234")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    started = time.perf_counter()
    with ClockSampler(torch.device("cuda"), Driver()) as sampler:
        while len(sampler.readings) < 3:
            time.sleep(0.001)
    figures = sampler.during([Interval(started, time.perf_counter())])
    assert figures == {
        "sm_clock_mhz": 1980, "least_sm_clock_mhz": 1980, "power_watts": None,
        "throttle_reasons": {"power limit": 1.0, "temperature limit of the driver": 1.0},
    }  # fmt: skip


def test_only_readings_during_the_calls_count() -> None:
    sampler = ClockSampler(torch.device("cpu"))
    sampler.readings = [
        ClockReading(1.0, 1000, 300.0, 0),
        ClockReading(2.0, 1200, 500.0, 4),
        ClockReading(3.0, 1400, 600.0, 0),
        ClockReading(9.0, 100, 50.0, 1),
    ]
    assert sampler.during([Interval(0.5, 2.5), Interval(2.9, 3.1)]) == {
        "sm_clock_mhz": 1200, "least_sm_clock_mhz": 1000, "power_watts": 466.7,
        "throttle_reasons": {"power limit": 0.333},
    }  # fmt: skip
    assert sampler.during([Interval(5.0, 6.0)]) == UNKNOWN


def test_a_cpu_has_no_such_values() -> None:
    with ClockSampler(torch.device("cpu")) as sampler:
        pass
    assert sampler.during([Interval(0.0, time.perf_counter())]) == UNKNOWN
