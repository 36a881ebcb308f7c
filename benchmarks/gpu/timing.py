"""Time short work on a device: by events of the GPU, or by the clock of the host on a CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch

from virnucpro.benchmark.clocks import ClockSampler, Interval
from virnucpro.benchmark.machine import synchronise

CALLS_SECONDS = 0.05  # the least time of the calls between two events


def milliseconds(work: Callable[[], object], device: torch.device, calls: int) -> float:
    """Return the time of one of ``calls`` calls."""
    if device.type != "cuda":
        started = time.perf_counter()
        for _ in range(calls):
            work()
        return 1e3 * (time.perf_counter() - started) / calls
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(calls):
        work()
    end.record()
    end.synchronize()
    elapsed: float = start.elapsed_time(end)
    return elapsed / calls


def time_variants(
    works: Mapping[str, Callable[[], object]], device: torch.device, rounds: int
) -> dict[str, dict[str, Any]]:
    """Time all works in turns, and return the figures of each.

    ``times_as_fast`` is the median over the rounds of the time of the first work divided by the
    time of this one.
    """
    calls: dict[str, int] = {}
    for name, work in works.items():
        milliseconds(work, device, 1)  # warm
        once = milliseconds(work, device, 1)
        least = CALLS_SECONDS if device.type == "cuda" else 0.0
        calls[name] = max(1, round(1e3 * least / max(once, 1e-3)))
    times: dict[str, list[float]] = {name: [] for name in works}
    intervals: dict[str, list[Interval]] = {name: [] for name in works}
    synchronise(device)
    with ClockSampler(device) as sampler:
        for _ in range(rounds):
            for name, work in works.items():
                started = time.perf_counter()
                times[name].append(milliseconds(work, device, calls[name]))
                intervals[name].append(Interval(started, time.perf_counter()))
    first = next(iter(times.values()))
    return {
        name: {
            "milliseconds": round(median(own), 5),
            "least_milliseconds": round(min(own), 5),
            "times_as_fast": round(median(a / b for a, b in zip(first, own, strict=True)), 4),
            "calls": calls[name] * rounds,
            **sampler.during(intervals[name]),
        }
        for name, own in times.items()
    }
