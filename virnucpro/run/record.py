"""The record of a run: ``STEM_run.json``, with what ran where, how long it took, and the counts."""

from __future__ import annotations

import json
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from virnucpro.contracts import Device, Json, TaskResult
from virnucpro.encoders.family import EncoderSource
from virnucpro.events import Emit, Event, Notice, WorkerReady, WorkerReport
from virnucpro.layout import Layout
from virnucpro.precision import PRECISIONS
from virnucpro.results import INCOMPLETE
from virnucpro.stages.embedding import EncoderSetup, budget_key
from virnucpro.store.disk import Disk
from virnucpro.store.documents import parse_json
from virnucpro.store.ledger import Ledger
from virnucpro.store.receipts import FileFailure
from virnucpro.version import __version__


@dataclass
class RunOutcome:
    """What one start of a run did.

    Attributes:
        ledger: the receipts of the run.
        seconds: time per stage.
        host_wait: seconds per stage, summed over workers, in which a device waited for tokens.
        computed: tasks carried out per stage.
        workers: one row per worker and stage, for the record of the run.
        budgets: the batch budgets that are known now.
    """

    ledger: Ledger
    seconds: dict[str, float] = field(default_factory=dict)
    host_wait: dict[str, float] = field(default_factory=dict)
    computed: Counter[str] = field(default_factory=Counter)
    workers: list[dict[str, Json]] = field(default_factory=list)
    budgets: Mapping[str, int] = field(default_factory=dict)

    def add(self, result: TaskResult) -> None:
        """Count a task that was carried out."""
        name = result.task.stage
        self.computed[name] += 1
        if waited := result.figures.host_wait_seconds:
            self.host_wait[name] = self.host_wait.get(name, 0.0) + waited

    def add_seconds(self, stage: str, seconds: float) -> None:
        """Count time that a stage, or some files of it, took."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def note_workers(self, workers: WorkerTable) -> None:
        """Keep what the workers reported, after the last stage."""
        self.workers, self.budgets = workers.rows(), workers.budgets

    @property
    def failures(self) -> list[FileFailure]:
        """All sequences without a result, now and from earlier starts."""
        return [failure for _, receipt in self.ledger.receipts() for failure in receipt.failures]


class WorkerTable:
    """Takes note of what workers report, on the way from the engine to whoever shows it.

    ``budgets`` are the batch budgets known so far; ``save_budgets`` is called with all of them
    when a worker has measured another.
    """

    def __init__(
        self,
        budgets: Mapping[str, int],
        save_budgets: Callable[[Mapping[str, int]], None],
        emit: Emit,
    ) -> None:
        self.budgets = dict(budgets)
        self._save_budgets = save_budgets
        self._emit = emit
        self._rows: dict[tuple[int, str], dict[str, Json]] = {}
        self._warnings: set[str] = set()

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
                self._check_precision(stage, facts)
            case WorkerReport(worker, device, stage):
                _add_report(self._row(worker, device, stage), event)
                if event.figures.uncompiled_calls:
                    self._warn(
                        f"{stage} did not use its compiled blocks in all calls, which is slower "
                        f"({event.figures.uncompiled_reason}). Results are valid, but may differ "
                        f"in their last digits; use --compile never if it comes again"
                    )
        self._emit(event)

    def rows(self) -> list[dict[str, Json]]:
        """Return one row per worker and stage: how it was opened last, and what it did in all."""
        return list(self._rows.values())

    def _row(self, worker: int, device: Device, stage: str) -> dict[str, Json]:
        start: dict[str, Json] = {
            "worker": worker,
            "stage": stage,
            "device": device.name,
            "uuid": device.uuid,
        }
        if device.host:
            start["host"] = device.host
        return self._rows.setdefault((worker, stage), start)

    def _check_precision(self, stage: str, facts: Mapping[str, Json]) -> None:
        """Say that blocks run as written in a precision that is fast only where they are compiled.

        ``--compile auto`` compiles nothing for little work.
        """
        row = PRECISIONS.get(facts.get("precision", ""))
        if row and row.needs_compiling and not facts.get("compiled"):
            self._warn(
                f"{stage} computes in {row.name} without compiled blocks, which is slower than "
                f"bf16: use --precision bf16 for so few sequences, or --compile always"
            )

    def _warn(self, text: str) -> None:
        """Say something once, however many workers report the same."""
        if text not in self._warnings:
            self._warnings.add(text)
            self._emit(Notice("warning", text))

    def _remember(self, key: str, budget: int) -> None:
        """Keep the smallest budget that a device of a kind found: it fits on each of them."""
        if budget < self.budgets.get(key, budget + 1):
            self.budgets[key] = budget
            self._save_budgets(self.budgets)


def _add_report(row: dict[str, Json], report: WorkerReport) -> None:
    """Add to a row what a worker did in a stage, or in some files of it."""
    for name in ("busy", "idle", "tasks"):
        row[name] = row.get(name, 0) + getattr(report, name)
    figures = asdict(report.figures)
    row["peak_memory"] = max(row.get("peak_memory", 0), figures["peak_memory"])
    for name in ("compiled_calls", "uncompiled_calls"):
        row[name] = row.get(name, 0) + figures[name]
    row["uncompiled_reason"] = row.get("uncompiled_reason") or figures["uncompiled_reason"]


def run_record(
    outcome: RunOutcome,
    encoders: EncoderSetup,
    devices: Sequence[Device],
    command: Sequence[str],
    **details: Json,
) -> dict[str, Json]:
    """Return what the record of any run holds, and the ``details`` of this kind of run."""
    return {
        **circumstances(command),
        **details,
        "models": {
            **{molecule: encoder_facts(s) for molecule, s in encoders.sources.items()},
            **details.get("models", {}),
        },
        "precision": encoders.precision,
        "devices": [device_facts(device) for device in devices],
        "workers": outcome.workers,
        "seconds": {name: round(s, 3) for name, s in outcome.seconds.items()},
        "seconds_waited_for_tokens": {name: round(s, 3) for name, s in outcome.host_wait.items()},
    }


def write_record(
    layout: Layout, disk: Disk, document: Mapping[str, Json], lasting: Sequence[str], computed: bool
) -> None:
    """Write ``STEM_run.json``, unless nothing was computed and what is ``lasting`` is the same."""
    try:
        earlier = parse_json(layout.run_json.read_bytes())
        unchanged = INCOMPLETE not in earlier and all(earlier[n] == document[n] for n in lasting)
    except (OSError, ValueError, KeyError, TypeError):
        unchanged = False
    if computed or not unchanged:
        disk.save(layout.run_json, (json.dumps(document, indent=1) + "\n").encode())


def circumstances(command: Sequence[str]) -> dict[str, Json]:
    """Return versions, time and command line, for any record."""
    import numpy
    import torch

    return {
        "virnucpro": __version__,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
        },
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": list(command),
    }


def encoder_facts(source: EncoderSource) -> dict[str, Json]:
    """Return the family, name, path, digest and width of an encoder."""
    return {
        "family": source.family,
        "name": source.name,
        "path": str(source.path),
        "sha256": source.sha256,
        "dim": source.dim,
        "reads": source.reading,
    }


def device_facts(device: Device) -> dict[str, Json]:
    """Return what a record says about a device."""
    fields = asdict(device)
    names = ["kind", "index", "name", "uuid", "memory", "threads", *(["host"] * bool(device.host))]
    return {name: fields[name] for name in names}
