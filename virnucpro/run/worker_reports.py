"""What the workers of a run said of themselves: for its record, and budgets for its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from virnucpro.contracts import Device, Json
from virnucpro.events import Event, Notice, WorkerReady, WorkerReport
from virnucpro.stages.embedding import budget_key

Keep = Callable[[Mapping[str, int]], None]


class Workers:
    """Stands between the engine and whoever shows its events, and takes note.

    ``kept`` are the budgets known so far; ``keep`` is called with all of them when a worker has
    measured another.
    """

    def __init__(self, kept: Mapping[str, int], keep: Keep, emit: Callable[[Event], None]) -> None:
        self._kept = dict(kept)
        self._keep = keep
        self._emit = emit
        self._rows: dict[tuple[int, str], dict[str, Json]] = {}
        self._warned: set[str] = set()

    def show(self, event: Event) -> None:
        """Take note of ``event`` and pass it on."""
        match event:
            case WorkerReady(worker, device, stage, seconds, facts):
                row = self._row(worker, device, stage)
                row.update({"seconds_to_open": round(seconds, 3), **facts})
                if facts.get("found") == "measured":
                    self._remember(budget_key(stage, device), int(facts["budget"]))
                if reason := facts.get("compile_failed"):
                    text = f"{stage} could not be compiled on {device.name} and is slower for it"
                    self._warn(f"{text}: {reason}")
            case WorkerReport(worker, device, stage):
                figures = asdict(event)
                for name in ("busy", "idle", "tasks", "peak_memory"):
                    self._row(worker, device, stage)[name] = figures[name]
        self._emit(event)

    def table(self) -> list[dict[str, Json]]:
        """One row a worker and stage, as its last start left it."""
        return list(self._rows.values())

    def _row(self, worker: int, device: Device, stage: str) -> dict[str, Json]:
        start = {"worker": worker, "stage": stage, "device": device.name, "uuid": device.uuid}
        return self._rows.setdefault((worker, stage), start)

    def _warn(self, text: str) -> None:
        """Once, however many workers say the same."""
        if text not in self._warned:
            self._warned.add(text)
            self._emit(Notice("warning", text))

    def _remember(self, key: str, budget: int) -> None:
        """The smallest that a device of a kind found: what fits on each of them."""
        if budget < self._kept.get(key, budget + 1):
            self._kept[key] = budget
            self._keep(self._kept)
