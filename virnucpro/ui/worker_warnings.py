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
        alike = [w for w in workers if w.device == worker.device] if worker.state == "busy" else []
        known = [w.usual_seconds for w in alike if w.usual_seconds]
        usual = worker.usual_seconds or (statistics.median(known) if known else None)
        limit = STALL_UNKNOWN if worker.device.kind == "cuda" else float("inf")
        if usual is not None:
            limit = max(STALL_SECONDS, STALL_FACTOR * usual)
        silence = now - worker.last_report
        if worker.state in ("busy", "loading") and silence >= limit:
            work = worker.task.name if worker.task else "loading the model"
            habit = "" if usual is None else f"; its tasks usually take {usual:.0f} s"
            name = worker_name(worker.number, worker.device)
            text = f"{name} has made no progress for {clock_time(silence)} on {work}{habit}"
            warnings[worker.number] = text
    return warnings


def slow_workers(workers: Sequence[WorkerProgress], now: float) -> dict[int, float]:
    """Return the workers that are far too slow: their share of the others' median speed.

    Speed is planned weight per second; only devices of the same name are compared.
    """
    rates = [(w, w.rate.per_second(now)) for w in workers if w.state == "busy"]
    speeds = [(w.number, w.device.name, rate.weight) for w, rate in rates if rate is not None]
    shares = {}
    for number, name, speed in speeds:
        others = [s for n, other, s in speeds if n != number and other == name]
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
        if not (workers := self._progress.workers):
            return []
        before = self._stalled
        self._stalled = stalled_workers(workers, now)
        warnings = [text for number, text in self._stalled.items() if number not in before]
        shares = slow_workers([w for w in workers if w.number not in self._stalled], now)
        self._slow_since = {number: self._slow_since.get(number, now) for number in shares}
        for worker in workers:
            lasted = now - self._slow_since.get(worker.number, now)
            if lasted >= SLOW_SECONDS and worker.number not in self._slow:
                self._slow.add(worker.number)
                name, share = worker_name(worker.number, worker.device), shares[worker.number]
                warnings.append(
                    f"{name} has been slow for {clock_time(lasted)}: {percent(share)} of the "
                    f"median speed of the others; it may be shared with another program, hot or "
                    f"throttled (see nvidia-smi), or short of cores"
                )
        return warnings
