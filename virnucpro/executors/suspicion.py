"""Who is to blame when workers die or run out of memory: a sequence, a device, or everything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from virnucpro.contracts import Task
from virnucpro.errors import DeviceError
from virnucpro.executors.crew import Worker

BLAMES = 3  # tasks that kill a worker on one device and no other: it is broken
# Finding one deadly sequence among 1,000 takes 13 deaths, six neighbours among 250 about 25.
SETBACKS = 30  # in a row, and nothing finished in between: it is not the sequences


class Suspicion:
    """Keeps in mind what has gone wrong in a stage. Tasks are known by their receipts."""

    def __init__(self) -> None:
        self._deaths: dict[Path, list[Worker]] = {}
        self._halves: set[Path] = set()  # of tasks that proved deadly or too large
        self._setbacks = 0

    def died(self, worker: Worker, task: Task) -> bool:
        """A worker died over a task. False where the task deserves another attempt as it is."""
        deaths = self._deaths.setdefault(task.receipt, [])
        deaths.append(worker)
        return len(deaths) > 1 or (self.suspects(task) and task.count > 1)

    def killed(self, worker: Worker, task: Task) -> bool:
        """Whether this worker has died over the task."""
        return worker in self._deaths.get(task.receipt, [])

    def suspects(self, task: Task) -> bool:
        """Whether a larger task that holds it has proved deadly or too large."""
        return task.receipt in self._halves

    def divided(self, halves: Sequence[Task]) -> None:
        """What was deadly or too large is in one of these."""
        self._halves.update(half.receipt for half in halves)

    def finished(self, worker: Worker, task: Task) -> list[Worker]:
        """A task came to a good end; returns the workers whose devices are broken, as it shows."""
        self._setbacks = 0
        broken = []
        for accused in self._deaths.pop(task.receipt, []):
            if accused is not worker:
                accused.blame += 1
                if accused.blame == BLAMES:
                    broken.append(accused)
        return broken

    def setback(self, cause: str) -> DeviceError | None:
        """Something went wrong that may be the device's fault; the error where it is too much."""
        self._setbacks += 1
        if self._setbacks < SETBACKS:
            return None
        text = f"{self._setbacks} attempts in a row failed, the last one so: {cause}"
        return DeviceError(f"{text}. Check the device, then go on with --resume")
