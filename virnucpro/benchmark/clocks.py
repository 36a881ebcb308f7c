"""Read the clock, the power and the throttle reasons of a GPU while work is timed on it.

A rate says little without them: a GPU that is hot, or at its power limit, computes at another clock
from one second to the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, NamedTuple

import torch

from virnucpro.contracts import Json

READ_SECONDS = 0.05  # between two readings; the driver renews the power some ten times per second
# The bits of nvmlDeviceGetCurrentClocksEventReasons that slow a GPU down (nvml.h,
# nvmlClocksEventReason*). An idle GPU and clocks that somebody has set are reasons as well.
THROTTLE_REASONS: Mapping[int, str] = {
    0x1: "idle",
    0x2: "clocks were set",
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x10: "clocks of several GPUs kept equal",
    0x20: "temperature limit of the driver",
    0x40: "temperature limit of the hardware",
    0x80: "power brake",
}


class Interval(NamedTuple):
    """The start and the end of a call, in seconds of ``time.perf_counter``."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long the call took."""
        return self.end - self.start


@dataclass(frozen=True)
class ClockReading:
    """One reading. A value is None where the driver does not tell it."""

    time: float
    sm_clock_mhz: int | None
    power_watts: float | None
    throttle_bits: int | None


class ClockSampler:
    """Reads a GPU in a thread, from ``with`` to its end. On a CPU it reads nothing."""

    def __init__(self, device: torch.device, nvml: Any = None) -> None:
        """``nvml`` is the module ``pynvml``; None imports it for a GPU."""
        self.readings: list[ClockReading] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._nvml = nvml
        if device.type == "cuda":
            if nvml is None:
                import pynvml

                self._nvml = pynvml
            uuid = str(torch.cuda.get_device_properties(device).uuid)
            self._uuid = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
            self._thread = threading.Thread(target=self._read_until_end, daemon=True)

    def __enter__(self) -> ClockSampler:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _read_until_end(self) -> None:
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            handle = nvml.nvmlDeviceGetHandleByUUID(self._uuid)
        except nvml.NVMLError:
            return
        while not self._ended.wait(READ_SECONDS):
            self.readings.append(read_clocks(nvml, handle))

    def during(self, calls: Iterable[Interval]) -> dict[str, Json]:
        """Return the median clock, the mean power and the throttle reasons during the calls.

        A value is None where nothing was read: on a CPU, and where the driver does not tell it.
        ``throttle_reasons`` gives the share of the readings by reason.
        """
        intervals = list(calls)
        readings = [r for r in self.readings if any(i.start <= r.time <= i.end for i in intervals)]
        clocks = [r.sm_clock_mhz for r in readings if r.sm_clock_mhz is not None]
        powers = [r.power_watts for r in readings if r.power_watts is not None]
        bits = [r.throttle_bits for r in readings if r.throttle_bits is not None]
        reasons = {
            name: round(sum(bool(b & bit) for b in bits) / len(bits), 3)
            for bit, name in THROTTLE_REASONS.items()
            if any(b & bit for b in bits)
        }
        return {
            "sm_clock_mhz": median(clocks) if clocks else None,
            "least_sm_clock_mhz": min(clocks, default=None),
            "power_watts": round(fmean(powers), 1) if powers else None,
            "throttle_reasons": reasons if bits else None,
        }


def read_clocks(nvml: Any, handle: Any) -> ClockReading:
    """Read the GPU once."""

    def value(read: Any, *arguments: Any) -> Any:
        try:
            return read(handle, *arguments)
        except nvml.NVMLError:
            return None

    power = value(nvml.nvmlDeviceGetPowerUsage)  # milliwatts
    # Its name before version 12.535 of the driver; both names are there since then.
    bits = value(nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
    return ClockReading(
        time.perf_counter(),
        value(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        None if power is None else power / 1000,
        bits,
    )
