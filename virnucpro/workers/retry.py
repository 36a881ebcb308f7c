"""What is tried again of a task that failed: the whole policy.

1. The task as it is, once more: the cause may have passed, or was another task beside it.
2. Where it fails a second time, *single mode*: a worker computes one sequence at a time and writes
   the number of each row into a small file before. What raises an error is noted. Where the worker
   dies, the number says which sequence it was, and the search goes on behind it.
3. The task without the sequences that were found, so that its batches, and with them its bytes, do
   not depend on how the search went.
4. Where that fails twice, too, no sequence alone is the cause: all of them are given up.

An out-of-memory error never comes here first: the worker halves its batches. That devices are given
up, and when the run ends, is decided in :mod:`virnucpro.workers.scheduler`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from virnucpro.contracts import FailedRow, Task
from virnucpro.workers.pool import WorkFailure

MOST_FAILURES = 2  # of a task, before single mode and after it


@dataclass(frozen=True)
class SearchState:
    """Where single mode is: the row that is being computed, and what was found before it."""

    row: int
    found: tuple[FailedRow, ...] = ()

    def write(self, path: Path) -> None:
        """Write it down; what a process has written outlives it."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def read_search(path: Path) -> SearchState | None:
    """Return where single mode was; None where it had not begun."""
    with suppress(OSError, ValueError):
        return msgspec.json.decode(path.read_bytes(), type=SearchState)
    return None


@dataclass
class Retries:
    """A task that has failed, and what is tried of it next.

    Attributes:
        task: the task without the sequences that were found.
        exits: how often a worker has ended over it.
        failures: of the task as it is now, in a row.
        is_searched: whether single mode has been through it.
    """

    task: Task
    exits: int = 0
    failures: int = 0
    is_searched: bool = False

    def after_failure(self, failure: WorkFailure) -> Task | None:
        """Return what is tried next; None where it fails even without any of its sequences."""
        self.failures += 1
        if self.failures < MOST_FAILURES:
            return self.task
        self.failures = 0
        if not self.is_searched:
            return replace(self.task, single=0)
        if not self.task.count:
            return None
        rows = range(self.task.count + len(self.task.excluded))
        self.task = replace(self.task, excluded=(), count=len(rows))
        self._exclude(tuple(FailedRow(row, failure.error, failure.message) for row in rows))
        return self.task

    def after_search(self, found: tuple[FailedRow, ...]) -> Task:
        """Return the task without the sequences that single mode has found."""
        self.is_searched = True
        self._exclude(found)
        return self.task

    def after_death(self, search: Task, failure: WorkFailure) -> Task:
        """Return the rest of a search over which the worker died."""
        state = read_search(search.search_file)
        assert search.single is not None
        if state is None or state.row < search.single:  # it had not begun
            return search
        self._exclude((*state.found, FailedRow(state.row, failure.error, failure.message)))
        return replace(self.task, single=state.row + 1)

    def _exclude(self, found: tuple[FailedRow, ...]) -> None:
        excluded = (*self.task.excluded, *found)
        self.task = replace(self.task, excluded=excluded, count=self.task.count - len(found))
