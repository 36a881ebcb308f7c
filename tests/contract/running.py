"""Run the counting stage as a run would, with ledger and receipts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.contract.counting import Counting
from virnucpro.contracts import TaskResult
from virnucpro.events import Event
from virnucpro.layout import Layout
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger
from virnucpro.workers.scheduler import Workers


def fasta(folder: Path, name: str, ids: Sequence[str]) -> Path:
    """A file whose n-th sequence (from 0) has 5 + n letters."""
    path = folder / name
    path.write_text("".join(f">{i}\n{'A' * (5 + n)}\n" for n, i in enumerate(ids)))
    return path


def fastas(folder: Path, ids: Sequence[str], size: int) -> tuple[Path, ...]:
    """Files of ``size`` of the sequences each: ``f0000.fa`` and so on."""
    starts = range(0, len(ids), size)
    return tuple(fasta(folder, f"f{n:04d}.fa", ids[n : n + size]) for n in starts)


def written(folder: Path) -> list[str]:
    """Return the ids in all results, in the order of the files."""
    texts = [path.read_text() for path in sorted(folder.glob("f*.txt"))]
    return [line.split()[0] for text in texts for line in text.splitlines()]


def failed_ids(results: Sequence[TaskResult]) -> list[str]:
    """Return the ids that were given up, in order."""
    return sorted(i for r in results for failed in r.figures.failures for i in failed.ids)


def run_stage(
    stage: Counting,
    workers: Workers,
    folder: Path,
) -> tuple[list[TaskResult], list[Event]]:
    """Do what is stale, and accept what comes back."""
    ledger = Ledger(Layout(folder, "x", 500), Disk())
    todo = [task for task in stage.tasks() if not ledger.is_proved(task)]
    for task in todo:
        ledger.fingerprint(task)
    events: list[Event] = []
    results = []
    for result in workers.carry_out(stage, todo, events.append):
        ledger.accept(result)
        results.append(result)
    return results, events
