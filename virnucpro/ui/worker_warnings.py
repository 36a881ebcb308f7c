"""Warnings about workers: one that makes no progress, one that is much slower than the others.

Both are functions of the progress and a time; :class:`WorkerWatch` remembers what it warned of.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from virnucpro.formatting import clock_time, percent
from virnucpro.ui.labels import worker_name
from virnucpro.ui.stage_progress import StageProgress, WorkerProgress

STALL_FACTOR = 5  # times the usual duration of the worker's tasks, without any progress
STALL_SECONDS = 60.0  # at least
STALL_UNKNOWN = 600.0  # before the first task has ended, and while a model is loaded
SLOW_SHARE = 0.5  # of the median speed of the other devices of the same kind
SLOW_SECONDS = 180.0  # without a break


def stall_limit(worker: WorkerProgress, workers: Iterable[WorkerProgress]) -> float | None:
    """Return after how many seconds of silence a worker has stalled; None where nobody can tell.

    The first task of a CPU may rightly take hours.
    """
    usual = worker.usual_seconds
    if usual is None and worker.state == "busy":
        known = [w.usual_seconds for w in workers if w.usual_seconds and w.device == worker.device]
        usual = statistics.median(known) if known else None
    if usual is None:
        return STALL_UNKNOWN if worker.device.kind == "cuda" else None
    return max(STALL_SECONDS, STALL_FACTOR * usual)


def stalled_workers(workers: list[WorkerProgress], now: float) -> dict[int, str]:
    """Return a sentence for every worker that has been silent for too long, by its number."""
    warnings = {}
    for worker in workers:
        silence = now - worker.last_report
        limit = stall_limit(worker, workers)
        if worker.state not in ("busy", "loading") or limit is None or silence < limit:
            continue
        work = worker.task.name if worker.task else "loading the model"
        usual = worker.usual_seconds
        habit = "" if usual is None else f"; its tasks usually take {usual:.0f} s"
        name = worker_name(worker.number, worker.device)
        warnings[worker.number] = (
            f"{name} has made no progress for {clock_time(silence)} on {work}{habit}"
        )
    return warnings


def slow_workers(workers: Iterable[WorkerProgress], now: float) -> dict[int, float]:
    """Return the workers that are far too slow: their share of the others' median speed.

    Speed is planned weight per second; only devices of the same name are compared.
    """
    speeds = {}
    for worker in workers:
        rate = worker.rate.per_second(now)
        if worker.state == "busy" and rate is not None:
            speeds[worker.number] = (worker.device.name, rate.weight)
    shares = {}
    for number, (name, speed) in speeds.items():
        others = [s for n, (kind, s) in speeds.items() if n != number and kind == name]
        if others and speed < SLOW_SHARE * (median := statistics.median(others)):
            shares[number] = speed / median
    return shares


class WorkerWatch:
    """Warns once: of a stall until the worker moves again, of a slow worker once per stage."""

    def __init__(self, progress: StageProgress) -> None:
        self._progress = progress
        self._stage = 0
        self._stalled: set[int] = set()
        self._slow_since: dict[int, float] = {}
        self._slow: set[int] = set()

    def check(self, now: float) -> list[str]:
        """Return the warnings that are due."""
        if self._progress.number != self._stage:
            self._stage = self._progress.number
            self._slow_since, self._slow, self._stalled = {}, set(), set()
        workers = self._progress.workers
        stalled = stalled_workers(workers, now)
        warnings = [text for number, text in stalled.items() if number not in self._stalled]
        self._stalled = set(stalled)
        return warnings + self._check_speed(workers, now)

    def _check_speed(self, workers: list[WorkerProgress], now: float) -> list[str]:
        shares = slow_workers((w for w in workers if w.number not in self._stalled), now)
        self._slow_since = {number: self._slow_since.get(number, now) for number in shares}
        warnings = []
        for worker in workers:
            since = self._slow_since.get(worker.number, now)
            if now - since < SLOW_SECONDS or worker.number in self._slow:
                continue
            self._slow.add(worker.number)
            others = "the others" if len(workers) > 2 else "the other"
            cause = "shared with another program, hot or throttled (see nvidia-smi)"
            warnings.append(
                f"{worker_name(worker.number, worker.device)} has been slow for "
                f"{clock_time(now - since)}: {percent(shares[worker.number])} of the speed of "
                f"{others}; it may be {cause if worker.device.kind == 'cuda' else 'short of cores'}"
            )
        return warnings
