"""The spans of stale tasks: which are still to do, and when a task's are all there."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from virnucpro.contracts import FailedTask, SpannedStage, Stage, Task, TaskOutcome, TaskResult
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger

THREAD = "join"
# Eight GPUs finish a file of 10,000 nucleotide sequences in 0.12 s, one thread joins it in 0.2 s.
JOINING = 2  # files at a time


class Spans:
    """Keeps book over the pieces of each task of a stage. To be used in a ``with`` block.

    A task without spans is its own only piece. A span may have been halved by the executor: what
    counts is that the records of the task are covered, by results or by failures.

    Files are joined in threads, so that the loop that feeds the workers never waits for that. The
    ledger is only touched by whoever calls: a joined file counts when :meth:`add` or :meth:`rest`
    has committed it, and its parts go after that. When the block is left early, what is being
    joined is finished but not committed: a resumed run joins it again.
    """

    def __init__(self, stage: Stage, stale: list[Task], ledger: Ledger, disk: Disk) -> None:
        """Check every span against the ledger; ``todo`` are the stale ones."""
        self._stage = stage
        self._ledger = ledger
        self._disk = disk
        self._wholes = {task.inputs: task for task in stale}
        self._pieces: dict[tuple[Path, ...], list[TaskOutcome]] = {}
        self._threads = ThreadPoolExecutor(JOINING, THREAD)
        self._joining: deque[tuple[Task, Future[TaskResult]]] = deque()
        self.todo: list[Task] = []
        for task in stale:
            ledger.discard(task)
            for piece in stage.split(task) if isinstance(stage, SpannedStage) else [task]:
                if piece.span is not None and not ledger.check(piece).stale:
                    self._book(ledger.proved_span(piece))
                else:
                    ledger.discard(piece)
                    self.todo.append(piece)

    def __enter__(self) -> Spans:
        for task in self._wholes.values():
            self._join_if_covered(task)
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    @property
    def files(self) -> int:
        """Files of which a span is to do."""
        return len({task.inputs for task in self.todo if task.span is not None})

    def add(self, outcome: TaskOutcome) -> list[Task]:
        """Commit an outcome; returns the tasks of the files that have become whole meanwhile.

        Raises:
            VirNucProError: it cannot be committed, or a file could not be joined.
        """
        if isinstance(outcome, TaskResult):
            self._ledger.commit(outcome)
        if outcome.task.span is not None:
            self._join_if_covered(self._book(outcome))
        return self._whole(wait=False)

    def rest(self) -> list[Task]:
        """After the last outcome: wait for the files that are still being joined.

        Raises:
            VirNucProError: a file could not be joined.
        """
        return self._whole(wait=True)

    def _book(self, outcome: TaskOutcome) -> Task:
        self._pieces.setdefault(outcome.task.inputs, []).append(outcome)
        return self._wholes[outcome.task.inputs]

    def _join_if_covered(self, task: Task) -> None:
        pieces = self._pieces.get(task.inputs, [])
        if not pieces or sum(piece.task.count for piece in pieces) < task.count:
            return
        pieces.sort(key=lambda piece: piece.task.span or (0, 0))
        parts = [piece for piece in pieces if isinstance(piece, TaskResult)]
        failures = [piece for piece in pieces if isinstance(piece, FailedTask)]
        assert isinstance(self._stage, SpannedStage)
        self._joining.append((task, self._threads.submit(self._stage.join, task, parts, failures)))

    def _whole(self, *, wait: bool) -> list[Task]:
        """Commit the files that are joined, in the order in which they were covered."""
        whole = []
        while self._joining and (wait or self._joining[0][1].done()):
            task, joined = self._joining[0]
            self._ledger.commit(joined.result())
            self._joining.popleft()
            pieces = self._pieces.pop(task.inputs)
            if not any(isinstance(piece, FailedTask) for piece in pieces):
                # Else the parts stay: a later start tries only spans with failures.
                self._disk.remove_tree(pieces[0].task.receipt.parent)
            whole.append(task)
        return whole
