"""Time work on a device in turns, with the clock of the GPU, and the best its arithmetic can do."""

from __future__ import annotations

import math
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import torch

from virnucpro.compute.arithmetic import torch_dtype
from virnucpro.devices import visible_gpus

READ_SECONDS = 0.05  # between two readings; the driver renews the power some ten times per second
# The bits of nvmlDeviceGetCurrentClocksEventReasons that slow a GPU down (nvml.h,
# nvmlClocksEventReason*).
THROTTLE_REASONS: Mapping[int, str] = {
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x20: "temperature limit of the driver",
    0x40: "temperature limit of the hardware",
    0x80: "power brake",
}
CALLS_SECONDS = 0.05  # on a GPU, the least time of the calls between two events
# Sides of the square matrices: up to 1.1 TFLOP on a GPU, 17 GFLOP on a CPU.
SMALLEST_SIDE = 128
SIDE = {"cuda": 8192, "cpu": 2048}
# From here on a product can be timed. That of twice the side took up to 27 times as long (bf16 from
# 512 to 1,024 on a CPU with AVX2 alone), which is less than two seconds then.
TIMEABLE_SECONDS = 0.05
# A GPU lowers its clock within tenths of a second where it meets its power limit, so a shorter
# measurement shows a rate that no model can have. A CPU needs this long for a single product.
SUSTAINED_SECONDS = {"cuda": 0.3, "cpu": 0.0}
PACKAGES = (
    "torch", "triton", "numpy", "tokenizers", "transformers", "fair-esm", "nvidia-ml-py", "pytest",
    "pytest-xdist",
)  # fmt: skip


def package_version(package: str) -> str | None:
    """Return the version of an installed package, or None where it is absent."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def machine_facts() -> dict[str, Any]:
    """Return what a reader needs to judge a measurement on this machine."""
    gpus = [f"{gpu.name}, {gpu.memory} bytes" for gpu in visible_gpus()]
    facts = {"gpus": gpus, "threads": torch.get_num_threads(), "cuda": torch.version.cuda}
    facts |= {"load_average": os.getloadavg()[0], "python": platform.python_version()}
    if platform.system() == "Linux":
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        facts["cpu"] = next((line for line in lines if line.startswith("model name")), "")
    return facts | {name: package_version(name) for name in PACKAGES}


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has finished all of its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class ClockSampler:
    """Reads a GPU in a thread, from ``with`` to its end. On a CPU it reads nothing.

    Attributes:
        readings: the time, the SM clock in MHz, the power in milliwatts and the throttle bits. A
            value is None where the driver does not tell it.
    """

    def __init__(self, device: torch.device) -> None:
        self.readings: list[tuple[float, Any, Any, Any]] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        if device.type == "cuda":
            uuid = str(torch.cuda.get_device_properties(device).uuid)
            uuid = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
            self._thread = threading.Thread(target=self._read, args=(uuid,), daemon=True)

    def __enter__(self) -> ClockSampler:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _read(self, uuid: str) -> None:
        import pynvml as nvml

        def value(read: Any, *arguments: Any) -> Any:
            try:
                return read(*arguments)
            except nvml.NVMLError:
                return None

        value(nvml.nvmlInit)
        gpu = value(nvml.nvmlDeviceGetHandleByUUID, uuid)
        while gpu is not None and not self._ended.wait(READ_SECONDS):
            clock = value(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_SM)
            power = value(nvml.nvmlDeviceGetPowerUsage, gpu)
            # Its name before version 12.535 of the driver; both are there since then.
            bits = value(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, gpu)
            self.readings.append((time.perf_counter(), clock, power, bits))

    def during(self, calls: Sequence[tuple[float, float]]) -> dict[str, Any]:
        """Return the median clock and power and all throttle reasons from start to end of the calls.

        A value is None where nothing was read.
        """
        readings = [r[1:] for r in self.readings if any(a <= r[0] <= b for a, b in calls)]
        clocks, powers, bits = (
            [reading[column] for reading in readings if reading[column] is not None]
            for column in range(3)
        )
        return {
            "sm_clock_mhz": median(clocks) if clocks else None,
            "power_watts": median(powers) / 1e3 if powers else None,
            "throttle_reasons": [
                name for bit, name in THROTTLE_REASONS.items() if any(b & bit for b in bits)
            ],
        }


def seconds_per_call(work: Callable[[], object], device: torch.device, calls: int) -> float:
    """Time calls by events of the GPU, or by the clock of the host on a CPU."""
    if device.type != "cuda":
        started = time.perf_counter()
        for _ in range(calls):
            work()
        return (time.perf_counter() - started) / calls
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(calls):
        work()
    end.record()
    end.synchronize()
    elapsed: float = start.elapsed_time(end)
    return elapsed / 1e3 / calls


Figures = dict[str, dict[str, Any]]


def time_in_turns(
    works: Mapping[str, Callable[[], object]],
    device: torch.device,
    rounds: int,
    seconds: float = 0.0,
    *,
    short: bool = False,
) -> Iterator[Figures]:
    """Yield the figures of all works so far after every round, in which each is timed once.

    So a machine that is slow for a while is slow for all of them. There are at least ``rounds``
    rounds, and more until the calls took ``seconds`` per work on average. In the figures, ``seconds``
    are those of a call in each round. The works have been called before. On a GPU, ``short`` work
    is called many times in a round.
    """
    calls = dict.fromkeys(works, 1)
    if short and device.type == "cuda":
        for name, work in works.items():
            once = max(seconds_per_call(work, device, 1), 1e-6)
            calls[name] = max(1, round(CALLS_SECONDS / once))
    times: dict[str, list[float]] = {name: [] for name in works}
    intervals: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    begun, done = time.perf_counter(), 0
    with ClockSampler(device) as sampler:
        while done < rounds or time.perf_counter() - begun < seconds * len(works):
            for name, work in works.items():
                started = time.perf_counter()
                times[name].append(seconds_per_call(work, device, calls[name]))
                intervals[name].append((started, time.perf_counter()))
            done += 1
            yield {
                name: {
                    "milliseconds": round(1e3 * median(own), 5),
                    "seconds": list(own),
                    **sampler.during(intervals[name]),
                }
                for name, own in times.items()
            }


def ratio(others: Sequence[float], own: Sequence[float]) -> float | None:
    """Return the median ratio over the rounds, or None where one was not timed.

    A slow moment of the machine meets both in the same round.
    """
    if not others or not own:
        return None
    return median(other / one for other, one in zip(others, own, strict=True))


class MatrixProduct:
    """A large square matrix product at one precision, repeated for a while.

    Attributes:
        flops: the floating-point operations of a call.
    """

    def __init__(self, device: torch.device, precision: str) -> None:
        """Find how large matrices can be, and how many products take ``SUSTAINED_SECONDS``."""
        side, seconds = SMALLEST_SIDE // 2, 0.0
        self._count = 1
        while side < SIDE[device.type] and seconds < TIMEABLE_SECONDS:
            side *= 2
            self._a, self._b = (
                torch.randn(side, side, device=device).to(torch_dtype(precision)) for _ in range(2)
            )
            self._out = torch.empty_like(self._a)
            seconds = min(self._seconds(device) for _ in range(2))  # the first one loads a library
        self._count = max(1, math.ceil(SUSTAINED_SECONDS[device.type] / seconds))
        self.flops = 2 * side**3 * self._count

    def _seconds(self, device: torch.device) -> float:
        started = time.perf_counter()
        self()
        synchronise(device)
        return time.perf_counter() - started

    def __call__(self) -> None:
        """Start it. On a GPU it is finished when :func:`synchronise` returns."""
        with torch.inference_mode():
            for _ in range(self._count):
                torch.mm(self._a, self._b, out=self._out)
