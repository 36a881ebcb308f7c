"""The spans of stale tasks: which are still to do, and when a task's are all there."""

from __future__ import annotations

from pathlib import Path

from virnucpro.checkpoint.disk import Disk
from virnucpro.checkpoint.ledger import Ledger
from virnucpro.contracts import Done, Failed, Outcome, Stage, Task


class Spans:
    """Keeps book over the pieces of each task of a stage.

    A task without spans is its own only piece. A span may have been halved by the executor: what
    counts is that the records of the task are covered, by results or by failures.
    """

    def __init__(self, stage: Stage, stale: list[Task], ledger: Ledger, disk: Disk) -> None:
        """Check every span against the ledger; ``todo`` are the stale ones."""
        self._stage = stage
        self._ledger = ledger
        self._disk = disk
        self._wholes = {task.inputs: task for task in stale}
        self._pieces: dict[tuple[Path, ...], list[Outcome]] = {}
        self.todo: list[Task] = []
        for task in stale:
            ledger.discard(task)
            for piece in stage.split(task):
                if piece.span is not None and not ledger.check(piece).stale:
                    self._book(ledger.proof(piece))
                else:
                    ledger.discard(piece)
                    self.todo.append(piece)
            self._join_if_covered(task)

    @property
    def files(self) -> int:
        """Files of which a span is to do."""
        return len({task.inputs for task in self.todo if task.span is not None})

    def add(self, outcome: Outcome) -> Task | None:
        """Commit an outcome; returns its file's task when it was the last span missing."""
        if isinstance(outcome, Done):
            self._ledger.commit(outcome)
        if outcome.task.span is None:
            return None
        whole = self._book(outcome)
        return whole if self._join_if_covered(whole) else None

    def _book(self, outcome: Outcome) -> Task:
        self._pieces.setdefault(outcome.task.inputs, []).append(outcome)
        return self._wholes[outcome.task.inputs]

    def _join_if_covered(self, task: Task) -> bool:
        pieces = self._pieces.get(task.inputs, [])
        if not pieces or sum(piece.task.count for piece in pieces) < task.count:
            return False
        pieces.sort(key=lambda piece: piece.task.span or (0, 0))
        parts = [piece for piece in pieces if isinstance(piece, Done)]
        failed = [piece for piece in pieces if isinstance(piece, Failed)]
        self._ledger.commit(self._stage.join(task, parts, failed))
        if not failed:  # else the parts stay: --resume tries only spans with failures
            self._disk.remove_tree(pieces[0].task.receipt.parent)
        return True
