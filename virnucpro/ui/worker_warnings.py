"""Warnings about workers: one that makes no progress, one that is much slower than the others."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from virnucpro.formatting import clock_time, percent
from virnucpro.ui.log import worker_name
from virnucpro.ui.progress import StageProgress, WorkerProgress

STALL_FACTOR = 5  # times the usual duration of the worker's tasks, without any progress
STALL_SECONDS = 60.0  # at least
STALL_UNKNOWN = 600.0  # before the first task has ended, and while a model is loaded
SLOW_SHARE = 0.5  # of the median speed of the other devices of the same kind
SLOW_SECONDS = 180.0  # without a break


def stalled_workers(workers: Sequence[WorkerProgress], now: float) -> dict[int, str]:
    """Return a sentence for every worker that has been silent for too long, by its number.

    The first task of a CPU may rightly take hours.
    """
    warnings = {}
    for worker in workers:
        usual = worker.usual_seconds
        if usual is None and worker.state == "busy":
            known = [w.usual_seconds for w in workers if w.device == worker.device]
            usual = statistics.median([k for k in known if k] or [0]) or None
        limit = STALL_UNKNOWN if worker.device.kind == "cuda" else float("inf")
        if usual is not None:
            limit = max(STALL_SECONDS, STALL_FACTOR * usual)
        silence = now - worker.last_report
        if worker.state in ("busy", "loading") and silence >= limit:
            work = worker.task.name if worker.task else "loading the model"
            habit = "" if usual is None else f"; its tasks usually take {usual:.0f} s"
            name = worker_name(worker.number, worker.device)
            warnings[worker.number] = (
                f"{name} has made no progress for {clock_time(silence)} on {work}{habit}"
            )
    return warnings


def slow_workers(workers: Sequence[WorkerProgress], now: float) -> dict[int, float]:
    """Return the workers that are far too slow: their share of the others' median speed.

    Speed is planned weight per second; only devices of the same name are compared.
    """
    rates = {w.number: w.rate.per_second(now) for w in workers if w.state == "busy"}
    speeds = {number: rate.weight for number, rate in rates.items() if rate is not None}
    names, shares = {worker.number: worker.device.name for worker in workers}, {}
    for number, speed in speeds.items():
        others = [s for n, s in speeds.items() if n != number and names[n] == names[number]]
        if others and speed < SLOW_SHARE * (median := statistics.median(others)):
            shares[number] = speed / median
    return shares


class WorkerWatch:
    """Warns once: of a stall until the worker moves again, of a slow worker once per stage."""

    def __init__(self, progress: StageProgress) -> None:
        self._progress = progress
        self._stage = 0
        self._stalled: dict[int, str] = {}
        self._slow_since: dict[int, float] = {}
        self._slow: set[int] = set()

    def check(self, now: float) -> list[str]:
        """Return the warnings that are due."""
        if self._progress.stage.number != self._stage:
            self._stage = self._progress.stage.number
            self._slow_since, self._slow, self._stalled = {}, set(), {}
        workers, before = self._progress.workers, self._stalled
        self._stalled = stalled_workers(workers, now)
        warnings = [text for number, text in self._stalled.items() if number not in before]
        shares = slow_workers([w for w in workers if w.number not in self._stalled], now)
        self._slow_since = {number: self._slow_since.get(number, now) for number in shares}
        for worker in workers:
            lasted = now - self._slow_since.get(worker.number, now)
            if lasted < SLOW_SECONDS or worker.number in self._slow:
                continue
            self._slow.add(worker.number)
            cause = "shared with another program, hot or throttled (see nvidia-smi)"
            warnings.append(
                f"{worker_name(worker.number, worker.device)} has been slow for "
                f"{clock_time(lasted)}: {percent(shares[worker.number])} of the median speed of "
                f"the others; it may be "
                f"{cause if worker.device.kind == 'cuda' else 'short of cores'}"
            )
        return warnings
