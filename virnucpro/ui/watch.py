"""Warnings about workers: one that makes no progress, one that lags behind its equals.

Both are functions of the meter and a time; :class:`Watch` remembers what was said already.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from virnucpro.formatting import clock_time, percent
from virnucpro.ui.meter import Meter, Worker
from virnucpro.ui.words import full_label, piece

STALL_TIMES = 5  # as long as its pieces usually take, without any progress
STALL_SECONDS = 60.0  # at the least
STALL_UNKNOWN = 600.0  # before the first piece, and while a model is loaded
SLOW_SHARE = 0.5  # of the median speed of the others of the same kind
SLOW_SECONDS = 180.0  # for that long without a break


def stall_limit(worker: Worker, others: Iterable[Worker]) -> float | None:
    """Seconds of silence that are too long; None where there is nothing to compare with.

    A CPU's first piece may rightly take hours.
    """
    usual = worker.usual_seconds
    if usual is None:
        known = [o.usual_seconds for o in others if o.usual_seconds and o.device == worker.device]
        usual = statistics.median(known) if known and worker.state == "busy" else None
    if usual is None:
        return STALL_UNKNOWN if worker.device.kind == "cuda" else None
    return max(STALL_SECONDS, STALL_TIMES * usual)


def stalled(workers: Iterable[Worker], now: float) -> dict[int, str]:
    """A sentence for every worker that has been silent for too long, by worker."""
    everyone, found = list(workers), {}
    for worker in everyone:
        silent = now - worker.last
        limit = stall_limit(worker, everyone)
        if worker.state not in ("busy", "loading") or limit is None or silent < limit:
            continue
        what = piece(worker.task) if worker.task else "loading the model"
        usual = worker.usual_seconds
        often = f"; a piece usually takes it {usual:.0f} s" if usual is not None else ""
        name = full_label(worker.number, worker.device)
        found[worker.number] = (
            f"{name} has made no progress for {clock_time(silent)} on {what}{often}"
        )
    return found


def lagging(workers: Iterable[Worker], now: float) -> dict[int, tuple[float, float]]:
    """(its, the others' median) planned tokens a second of workers that are far too slow."""
    speeds = {}
    for worker in workers:
        pace = worker.rate.pace(now)
        if worker.state == "busy" and pace is not None:
            speeds[worker.number] = (worker.device.name, pace.weight)
    found = {}
    for number, (name, speed) in speeds.items():
        others = [s for n, (kind, s) in speeds.items() if n != number and kind == name]
        if others and speed < SLOW_SHARE * (median := statistics.median(others)):
            found[number] = (speed, median)
    return found


class Watch:
    """Says each thing once: a stall until the worker moves again, an imbalance once a stage."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._stage = 0
        self._stalled: set[int] = set()
        self._slow_since: dict[int, float] = {}
        self._slow: set[int] = set()

    def check(self, now: float) -> list[str]:
        """What should be said now."""
        if self._meter.number != self._stage:
            self._stage = self._meter.number
            self._slow_since, self._slow, self._stalled = {}, set(), set()
        workers = self._meter.workers
        silent = stalled(workers, now)
        said = [text for number, text in silent.items() if number not in self._stalled]
        self._stalled = set(silent)
        return said + self._imbalance(workers, now)

    def _imbalance(self, workers: list[Worker], now: float) -> list[str]:
        slow = lagging((w for w in workers if w.number not in self._stalled), now)
        self._slow_since = {number: self._slow_since.get(number, now) for number in slow}
        said = []
        for worker in workers:
            since = self._slow_since.get(worker.number, now)
            if now - since < SLOW_SECONDS or worker.number in self._slow:
                continue
            self._slow.add(worker.number)
            speed, median = slow[worker.number]
            others = "the others" if len(workers) > 2 else "the other"
            cause = "shared with another program, hot or throttled (see nvidia-smi)"
            said.append(
                f"{full_label(worker.number, worker.device)} has been slow for "
                f"{clock_time(now - since)}: {percent(speed / median)} of the speed of {others}; "
                f"it may be {cause if worker.device.kind == 'cuda' else 'short of cores'}"
            )
        return said
