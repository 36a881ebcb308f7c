"""How far the runs of an output directory are, told from their receipts.

A quick look that disturbs nobody: no lock is taken, nothing is written, no model is needed. Files
are checked by their sizes only; a later start checks contents. Which stages a run has, it has
itself written down (:func:`write_stage_list`). Imports neither torch nor numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from virnucpro.contracts import SPLITTING, OutputFile, Stage
from virnucpro.errors import UsageError
from virnucpro.layout import Layout, OutputFolder
from virnucpro.store import legacy
from virnucpro.store.disk import Disk
from virnucpro.store.documents import sealed, unsealed
from virnucpro.store.ledger import (
    StoredReceipts,
    has_receipts,
    read_receipts,
    receipt_or_problem,
)
from virnucpro.store.lock import A_RUN, LockOwner, read_owner
from virnucpro.store.receipts import FileFailure
from virnucpro.store.state import read_state

RunProgress = Literal["running", "finished", "partial", "interrupted", "legacy", "legacy finished"]


@dataclass(frozen=True)
class ListedStage:
    """What the stage list of a run says about a stage.

    Attributes:
        name: see :class:`virnucpro.contracts.Stage`.
        title: see there.
        embeds: whether it runs on the workers, so that sequences are counted.
        reads_intermediate: whether it needs files that the end of a run removes.
        file_pattern: its output for split file ``{number}``, relative to the output directory;
            None where it has one task.
    """

    name: str
    title: str
    embeds: bool
    reads_intermediate: bool
    file_pattern: str | None


def write_stage_list(layout: Layout, disk: Disk, command: str, stages: Sequence[Stage]) -> None:
    """Write down the stages of a run, and the ``command`` that continues it."""
    rows = [
        {
            "name": stage.name,
            "title": stage.title,
            "embeds": stage.runs_on == "worker",
            "reads_intermediate": stage.reads_intermediate,
            "file_pattern": stage.file_pattern
            and stage.file_pattern.relative_to(layout.root).as_posix(),
        }
        for stage in stages
    ]
    document = {"command": command, "stages": rows}
    disk.save(layout.stage_list, sealed(document), durable=False)


def read_stage_list(layout: Layout) -> tuple[str, list[ListedStage]]:
    """Return the command that continues a run, and its stages.

    Where the list is damaged, the stages are those of which a receipt exists.
    """
    try:
        document = unsealed(layout.stage_list.read_bytes())
        stages = [
            ListedStage(
                str(row["name"]),
                str(row["title"]),
                bool(row.get("embeds", row.get("spanned"))),  # runs of an earlier state say spanned
                bool(row["reads_intermediate"]),
                None if row["file_pattern"] is None else str(row["file_pattern"]),
            )
            for row in document["stages"]
        ]
        return str(document["command"]), stages
    except (OSError, ValueError, LookupError, TypeError):
        paths = read_receipts(layout).documents
        names = sorted(path.stem for path in paths if path == layout.receipt(path.stem))
        return "predict", [ListedStage(name, name, False, True, None) for name in names]


@dataclass(frozen=True)
class StageStatus:
    """How far a stage is: files and sequences that are done, of how many; None for unknown.

    ``missing`` has a phrase per file, with the reason. ``seconds`` is what the ``timed`` sequences
    took that this version embedded, on one device.
    """

    stage: ListedStage
    files_done: int
    files: int | None
    sequences_done: int | None = None
    sequences: int | None = None
    missing: tuple[str, ...] = ()
    seconds: float = 0.0
    timed: int = 0

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

    ``command`` is what would continue it.
    """

    stem: str
    state: RunProgress
    source: str | None
    owner: LockOwner | None
    stages: tuple[StageStatus, ...] = ()
    failures: tuple[FileFailure, ...] = ()
    features: int = 0  # files that an earlier version left
    command: str = "predict"

    @property
    def todo(self) -> list[StageStatus]:
        """Stages that the same command would work on."""
        return [stage for stage in self.stages if not stage.complete]

    @property
    def seconds_left(self) -> float | None:
        """What embedding the rest takes on one device; None where that cannot be told."""
        seconds = [s.seconds_left for s in self.stages if s.stage.embeds]
        known = [value for value in seconds if value is not None]
        return sum(known) if seconds and len(known) == len(seconds) else None


def statuses(root: Path) -> list[RunStatus]:
    """Return the status of every run in the output directory ``root``, by name.

    Raises:
        UsageError: there is no such directory, or no run in it (exit 64).
        ResumeRefusedError: a run of a newer version of the program (exit 3).
    """
    if not root.is_dir():
        raise UsageError(f"{root} is not a directory: name the --output-dir of a run")
    runs = [status for stem in _stems(root) if (status := _run_status(root, stem))]
    if not runs:
        raise UsageError(
            f"{root} holds no run of virnucpro predict, and no data set that was embedded: name "
            f"the --output-dir of one"
        )
    return runs


def _stems(root: Path) -> list[str]:
    """Return the names of all runs that left a lock, a state or a receipt."""
    folder = OutputFolder(root)
    names = set(legacy.legacy_stems(folder))
    if folder.runs.is_dir():
        names |= {path.name for path in folder.runs.iterdir()}
    return sorted(names)


def _run_status(root: Path, stem: str) -> RunStatus | None:
    """Return what is known about ``stem``; None where there is no run of that name."""
    layout = Layout(root, stem)
    owner = read_owner(layout.lock)
    if owner is not None and owner.is_dead:
        owner = None
    if not (layout.run_state.exists() or has_receipts(layout)):
        if legacy.is_legacy_run(layout):
            state: RunProgress = "legacy finished" if legacy.is_finished(layout) else "legacy"
            features = len(legacy.feature_files(layout))
            return RunStatus(stem, "running" if owner else state, None, owner, features=features)
        begun = owner is not None and owner.work == A_RUN
        return RunStatus(stem, "running", None, owner) if begun else None
    earlier = read_state(layout)
    command, listed = read_stage_list(layout)
    stored = read_receipts(layout)
    stages, failures = _stages(layout, stored, listed)
    needed = any(not s.complete and s.stage.reads_intermediate for s in stages)
    # A run that does not keep features removes those of split files that have scores.
    if stored.removed and needed and not layout.score_files():
        stages, failures = _stages(
            layout, StoredReceipts(documents=stored.documents), listed
        )  # removed files are needed again
    if owner:
        state = "running"
    elif failures and all(s.complete for s in stages if not s.stage.embeds):
        state = "partial"
    else:
        state = "finished" if all(s.complete for s in stages) else "interrupted"
    source = earlier.source if earlier else None
    return RunStatus(stem, state, source, owner, tuple(stages), tuple(failures), command=command)


def _stages(
    layout: Layout, stored: StoredReceipts, listed: Sequence[ListedStage]
) -> tuple[list[StageStatus], list[FileFailure]]:
    """Return the status of all stages of a run, and what failed in them."""
    splitting = receipt_or_problem(layout, layout.receipt(SPLITTING), stored)
    stages: list[StageStatus] = []
    failures: list[FileFailure] = []
    for stage in listed:
        if stage.file_pattern is None:
            receipt = receipt_or_problem(layout, layout.receipt(stage.name), stored)
            missing = (receipt,) if isinstance(receipt, str) else ()
            stages.append(StageStatus(stage, 1 - len(missing), 1, missing=missing))
        elif isinstance(splitting, str):
            stages.append(StageStatus(stage, 0, None))
        else:
            folder = layout.folder("nucleotide")  # the split files of proteins have the same rows
            files = [file for file in splitting.outputs if file.path.parent == folder]
            stages.append(_per_file(layout, stored, stage, stage.file_pattern, files, failures))
    return stages, failures


def _per_file(
    layout: Layout,
    stored: StoredReceipts,
    stage: ListedStage,
    pattern: str,
    files: Sequence[OutputFile],
    failures: list[FileFailure],
) -> StageStatus:
    """Return the status of a stage with a task per split file."""
    missing = []
    done = timed = 0
    seconds = 0.0
    output = layout.root / pattern
    for number, file in enumerate(files, 1):
        path = output.with_name(output.name.replace("{number}", str(number)))
        receipt = receipt_or_problem(layout, path.with_name(path.name + ".done"), stored)
        if isinstance(receipt, str):
            missing.append(f"{path.name}: {receipt}")
            continue
        if receipt.failed:
            missing.append(f"{path.name}: {len(receipt.failed)} sequences failed")
            failures += receipt.failures
        rows = sum(output.rows for output in receipt.outputs)
        done += min(file.rows, rows)
        if receipt.seconds > 0:
            timed += rows
            seconds += receipt.seconds
    status = StageStatus(stage, len(files) - len(missing), len(files), missing=tuple(missing))
    if not stage.embeds:
        return status
    total = sum(file.rows for file in files)
    return StageStatus(
        stage, status.files_done, len(files), done, total, tuple(missing), seconds, timed
    )
