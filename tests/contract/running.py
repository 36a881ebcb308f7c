"""Run the counting stage as the pipeline would, with spans, ledger and receipts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.contract.counting import Counting
from virnucpro.contracts import TaskOutcome
from virnucpro.events import Event
from virnucpro.executors.executor import Executor
from virnucpro.layout import RunLayout
from virnucpro.run.spans import Spans
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger


def fasta(folder: Path, name: str, ids: list[str]) -> Path:
    """A file whose n-th sequence (from 0) has 5 + n letters."""
    path = folder / name
    path.write_text("".join(f">{i}\n{'A' * (5 + n)}\n" for n, i in enumerate(ids)))
    return path


def run_stage(
    stage: Counting,
    executor: Executor,
    folder: Path,
    see: Callable[[Event], None] = lambda event: None,
) -> tuple[list[TaskOutcome], list[Event]]:
    """Do what is stale, commit what comes back; ``see`` gets each event as it happens."""
    ledger = Ledger(RunLayout(folder, "x", 500), Disk(), {})
    stale = [task for task in stage.plan() if ledger.check(task).stale]
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(event)
        see(event)

    outcomes = []
    with Spans(stage, stale, ledger, Disk()) as spans:
        for outcome in executor.run(stage, spans.todo, emit):
            spans.add(outcome)
            outcomes.append(outcome)
        spans.rest()
    return outcomes, events
