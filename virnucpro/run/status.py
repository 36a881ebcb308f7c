"""How far the runs of an output directory are, told from their receipts.

A quick look that disturbs nobody: no lock is taken, nothing is written, no model is needed. Files
are checked by their sizes only; a later start checks contents. Which stages a run has, it has
itself written down (:func:`write_stage_list`). Imports neither torch nor numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from virnucpro.contracts import SPLITTING, Json
from virnucpro.layout import Layout, OutputFolder, receipt_beside
from virnucpro.run.run import Run
from virnucpro.store import legacy
from virnucpro.store.documents import sealed, unsealed
from virnucpro.store.ledger import (
    FileFailure,
    Ledger,
    Receipt,
    UnusableReceiptError,
    has_receipts,
)
from virnucpro.store.lock import A_RUN, LockOwner, read_owner
from virnucpro.store.work import read_state

RunProgress = Literal["running", "finished", "partial", "interrupted", "legacy", "legacy finished"]


@dataclass
class StageStatus:
    """A stage of the list of a run, and how far it is; None for unknown.

    Its first five values are those of :class:`virnucpro.contracts.Stage` that stand in the list.
    ``missing`` has a phrase per file, with the reason. ``seconds`` is what the ``timed`` sequences
    took that this version embedded, on one device.
    """

    name: str
    title: str
    embeds: bool
    reads_intermediate: bool
    file_pattern: str | None
    files: int | None = None
    sequences_done: int | None = None
    sequences: int | None = None
    missing: list[str] = field(default_factory=list)
    seconds: float = 0.0
    timed: int = 0

    @property
    def files_done(self) -> int:
        """Finished tasks."""
        return (self.files or 0) - len(self.missing)

    @property
    def complete(self) -> bool:
        """Whether the same command would find nothing to do."""
        return not self.missing and self.files is not None

    @property
    def remaining(self) -> int | None:
        """Sequences to do; None for unknown."""
        if self.sequences is None or self.sequences_done is None:
            return None
        return self.sequences - self.sequences_done

    @property
    def seconds_left(self) -> float | None:
        """What they take on one device, at the rate of those that are done."""
        if self.remaining == 0:
            return 0.0
        if self.remaining is None or not self.timed:
            return None
        return self.remaining * self.seconds / self.timed


@dataclass(frozen=True)
class RunStatus:
    """One run. ``owner`` is the process that works on it; ``source`` its input, where known.

    ``command`` is what would continue it, ``features`` the files that version 1 left.
    """

    stem: str
    state: RunProgress
    source: str | None
    owner: LockOwner | None
    stages: Sequence[StageStatus] = ()
    failures: Sequence[FileFailure] = ()
    features: int = 0
    command: str = "predict"

    @property
    def todo(self) -> list[StageStatus]:
        """Stages that the same command would work on."""
        return [stage for stage in self.stages if not stage.complete]

    @property
    def seconds_left(self) -> float | None:
        """What embedding the rest takes on one device; None where that cannot be told."""
        seconds = [stage.seconds_left for stage in self.stages if stage.embeds]
        known = [value for value in seconds if value is not None]
        return sum(known) if seconds and len(known) == len(seconds) else None


def write_stage_list(run: Run) -> None:
    """Write down the stages of a run, and the command that continues it."""
    rows = [
        {
            "name": stage.name,
            "title": stage.title,
            "embeds": stage.runs_on == "worker",
            "reads_intermediate": stage.reads_intermediate,
            "file_pattern": stage.file_pattern
            and stage.file_pattern.relative_to(run.layout.root).as_posix(),
        }
        for stage in run.stages
    ]
    document = {"command": run.command, "stages": rows}
    run.disk.save(run.layout.stage_list, sealed(document), durable=False)


def layouts_in(root: Path) -> list[Layout]:
    """Return the files of all runs that left a lock, a state or a receipt, by name."""
    folder = OutputFolder(root)
    names = set(legacy.legacy_stems(folder))
    if folder.runs.is_dir():
        names |= {path.name for path in folder.runs.iterdir()}
    return [Layout(root, name) for name in sorted(names)]


def statuses(root: Path) -> list[RunStatus]:
    """Return the status of every run in the output directory ``root``, by name."""
    return [status for layout in layouts_in(root) if (status := _run_status(layout))]


def _run_status(layout: Layout) -> RunStatus | None:
    """Return what is known about a run; None where there is none."""
    owner = read_owner(layout.lock)
    if owner is not None and owner.is_dead:
        owner = None
    state: RunProgress | None = "running" if owner is not None else None
    if not (layout.run_state.exists() or has_receipts(layout)):
        if legacy.is_legacy_run(layout):
            was: RunProgress = "legacy finished" if legacy.is_finished(layout) else "legacy"
            features = len(legacy.feature_files(layout))
            return RunStatus(layout.stem, state or was, None, owner, features=features)
        begun = owner is not None and owner.work == A_RUN
        return RunStatus(layout.stem, "running", None, owner) if begun else None
    earlier, ledger = read_state(layout), Ledger(layout)
    try:
        listed = unsealed(layout.stage_list.read_bytes())
    except (OSError, ValueError):  # the next start writes it again
        listed = {"command": "predict", "stages": []}
    stages, failures = _stages(layout, ledger, listed["stages"])
    needed = any(not stage.complete and stage.reads_intermediate for stage in stages)
    # A run that does not keep features removes those of split files that have scores.
    if ledger.removed and needed and not layout.score_files():
        ledger.removed = frozenset()  # these files are needed again
        stages, failures = _stages(layout, ledger, listed["stages"])
    complete = bool(stages) and all(stage.complete for stage in stages)
    if failures and all(stage.complete for stage in stages if not stage.embeds):
        state = state or "partial"
    state = state or ("finished" if complete else "interrupted")
    source = earlier.source if earlier else None
    return RunStatus(layout.stem, state, source, owner, stages, failures, command=listed["command"])


def _stages(
    layout: Layout, ledger: Ledger, listed: Sequence[Json]
) -> tuple[list[StageStatus], list[FileFailure]]:
    """Return the status of all stages of a run, and what failed in them."""
    splitting = _receipt(ledger, layout.receipt(SPLITTING))
    stages = [StageStatus(**row) for row in listed]
    failures: list[FileFailure] = []
    for stage in stages:
        if stage.file_pattern is None:
            stage.files = 1
            receipt = _receipt(ledger, layout.receipt(stage.name))
            stage.missing += [receipt] if isinstance(receipt, str) else []
        elif not isinstance(splitting, str):
            folder = layout.folder("nucleotide")  # the split files of proteins have the same rows
            rows = [file.rows for file in splitting.outputs if file.path.parent == folder]
            failures += _count_files(ledger, stage, layout.root / stage.file_pattern, rows)
    return stages, failures


def _receipt(ledger: Ledger, name: Path) -> Receipt | str:
    """Return a receipt whose files have their sizes, or were removed; else what is wrong."""
    try:
        receipt = ledger.read(name)
        return ledger.problem(receipt) or receipt
    except UnusableReceiptError as error:
        return str(error)


def _count_files(
    ledger: Ledger, stage: StageStatus, output: Path, rows: Sequence[int]
) -> list[FileFailure]:
    """Count the finished files of a stage with a task per split file; return what failed."""
    failures: list[FileFailure] = []
    done = 0
    for number, count in enumerate(rows, 1):
        path = output.with_name(output.name.replace("{number}", str(number)))
        receipt = _receipt(ledger, receipt_beside(path))
        if isinstance(receipt, str):
            stage.missing.append(f"{path.name}: {receipt}")
            continue
        if receipt.failed:
            stage.missing.append(f"{path.name}: {len(receipt.failed)} sequences failed")
            failures += receipt.failures
        present = sum(output.rows for output in receipt.outputs)
        done += min(count, present)
        if receipt.seconds > 0:
            stage.timed += present
            stage.seconds += receipt.seconds
    stage.files = len(rows)
    if stage.embeds:
        stage.sequences_done, stage.sequences = done, sum(rows)
    return failures
