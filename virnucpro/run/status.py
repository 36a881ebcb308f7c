"""How far the runs of an output directory are, told from their receipts.

A quick look that disturbs nobody: no lock is taken, nothing is written, no model is needed. Files
are checked by their sizes only; ``--resume`` checks contents. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from virnucpro.contracts import OutputFile
from virnucpro.errors import UsageError
from virnucpro.layout import Layout, Molecule
from virnucpro.store import legacy
from virnucpro.store.ledger import look, read_removed
from virnucpro.store.lock import A_RUN, LockOwner, read_owner
from virnucpro.store.receipts import Receipt
from virnucpro.store.state import read_state

State = Literal["running", "finished", "partial", "interrupted", "legacy", "legacy finished"]
ENCODERS: dict[str, Molecule] = {"dnabert": "nucleotide", "esm": "protein"}
STAGES = (
    *("chunking", "translation", "splitting"),
    *ENCODERS,
    *("merging", "prediction", "consensus", "output"),
)
OF_A_PART = ("splitting", *ENCODERS, "merging")  # of a data set: there `train embed` goes on
# These read what is kept after a run; every other one needs files that its end removed.
FROM_RESULTS = ("consensus", "output")


@dataclass(frozen=True)
class Progress:
    """A stage: files and sequences that are done, of how many; None where nobody knows yet.

    ``missing`` has a phrase a file, with the reason. ``seconds`` is what the ``timed`` sequences
    took that this version embedded, on one device.
    """

    stage: str
    files_done: int
    files: int | None
    sequences_done: int | None = None
    sequences: int | None = None
    missing: tuple[str, ...] = ()
    seconds: float = 0.0
    timed: int = 0

    @property
    def complete(self) -> bool:
        """Whether ``--resume`` would find nothing to do."""
        return not self.missing and self.files is not None

    @property
    def left(self) -> int | None:
        """Sequences to do; None where nobody knows."""
        if self.sequences is None or self.sequences_done is None:
            return None
        return self.sequences - self.sequences_done

    @property
    def seconds_left(self) -> float | None:
        """What they take on one device, at the rate of those that are done."""
        if self.left == 0:
            return 0.0
        if self.left is None or not self.timed:
            return None
        return self.left * self.seconds / self.timed


@dataclass(frozen=True)
class Failure:
    """Sequences of a feature file that could not be embedded, and why."""

    stage: str
    file: str
    error: str
    message: str
    sequences: int


@dataclass(frozen=True)
class RunStatus:
    """One run. ``owner`` is the process that works on it; ``source`` its input, where known.

    ``command`` is what would go on with it.
    """

    stem: str
    state: State
    source: str | None
    owner: LockOwner | None
    stages: tuple[Progress, ...]
    failed: tuple[Failure, ...]
    features: int = 0  # files that an earlier version left
    command: str = "predict --resume"

    @property
    def todo(self) -> list[Progress]:
        """Stages that ``--resume`` would work on."""
        return [stage for stage in self.stages if not stage.complete]

    @property
    def seconds_left(self) -> float | None:
        """What embedding the rest takes on one device; None where there is nothing to judge by."""
        left = [stage.seconds_left for stage in self.stages if stage.stage in ENCODERS]
        known = [seconds for seconds in left if seconds is not None]
        return sum(known) if left and len(known) == len(left) else None


def statuses(root: Path) -> list[RunStatus]:
    """Every run in the output directory ``root``, by name.

    Raises:
        UsageError: there is no such directory, or no run in it (exit 64).
        ResumeRefused: a run of a newer version of the program (exit 3).
    """
    if not root.is_dir():
        raise UsageError(f"{root} is no directory: name the --output-dir of a run")
    found = [status for stem in _stems(root) if (status := _status(root, stem))]
    if not found:
        raise UsageError(f"{root} holds no run of virnucpro: name the --output-dir of one")
    return found


def _stems(root: Path) -> list[str]:
    folder = Layout(root, "", 0).checkpoints
    names = set(legacy.stems(root))
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.suffix == ".lock":
            names.add(path.name[: -len(".lock")])
        elif Layout(root, path.name, 0).run_state.exists() or any(path.glob("*.done")):
            names.add(path.name)
    return sorted(names - {""})


def _status(root: Path, stem: str) -> RunStatus | None:
    """What is known of ``stem``; None where there is no run of that name."""
    layout = Layout(root, stem, 0)
    owner = read_owner(layout.lock)
    if owner is not None and owner.is_dead:
        owner = None
    if not layout.run_state.exists() and not any(layout.state.glob("*.done")):
        if legacy.found(layout):
            return _legacy(layout, owner)
        begun = owner is not None and owner.work == A_RUN
        return RunStatus(stem, "running", None, owner, (), ()) if begun else None
    state = read_state(layout)
    source = state.source if state else None
    removed = read_removed(layout)
    if state and "classifier" not in state.analysis:
        stages, failed = _progress(layout, removed, OF_A_PART)
        how = _state(owner, stages, failed)
        return RunStatus(stem, how, source, owner, stages, failed, command="train embed")
    stages, failed = _progress(layout, removed)
    if removed and any(not s.complete and s.stage not in FROM_RESULTS for s in stages):
        stages, failed = _progress(layout, frozenset())  # what was removed is needed again
    return RunStatus(stem, _state(owner, stages, failed), source, owner, stages, failed)


def _state(owner: LockOwner | None, stages: Iterable[Progress], failed: Iterable[Failure]) -> State:
    if owner:
        return "running"
    if failed and all(stage.complete for stage in stages if stage.stage not in ENCODERS):
        return "partial"
    return "finished" if all(stage.complete for stage in stages) else "interrupted"


def _legacy(layout: Layout, owner: LockOwner | None) -> RunStatus:
    state: State = "legacy finished" if legacy.finished(layout) else "legacy"
    features = len(legacy.feature_files(layout))
    return RunStatus(layout.stem, "running" if owner else state, None, owner, (), (), features)


def _progress(
    layout: Layout, removed: frozenset[Path], names: Iterable[str] = STAGES
) -> tuple[tuple[Progress, ...], tuple[Failure, ...]]:
    """All stages of a run, and what failed in them."""
    splitting = look(layout, layout.receipt("splitting"), removed)
    stages: list[Progress] = []
    failed: list[Failure] = []
    for stage in names:
        if stage in ENCODERS:
            if isinstance(splitting, str):
                stages.append(Progress(stage, 0, None))
                continue
            files = [
                output
                for output in splitting.outputs
                if output.path.parent == layout.folder(ENCODERS[stage])
            ]
            progress, failures = _embedded(layout, removed, stage, files)
            stages.append(progress)
            failed += failures
        elif stage == "merging":
            stages.append(_merged(layout, removed, splitting))
        else:
            receipt = look(layout, layout.receipt(stage), removed)
            missing = (receipt,) if isinstance(receipt, str) else ()
            stages.append(Progress(stage, 1 - len(missing), 1, missing=missing))
    return tuple(stages), tuple(failed)


def _embedded(
    layout: Layout, removed: frozenset[Path], stage: str, files: list[OutputFile]
) -> tuple[Progress, list[Failure]]:
    """The feature files of one encoder, with the finished spans of those that are not whole."""
    missing, failures = [], []
    done = timed = 0
    seconds = 0.0
    left = legacy.surveyed(layout)
    for number, file in enumerate(files, 1):
        path = layout.features(ENCODERS[stage], number)
        receipt = look(layout, path.with_name(path.name + ".done"), removed)
        if isinstance(receipt, str):
            reason = "left by an earlier version, to be examined" if path in left else receipt
            missing.append(f"{path.name}: {reason}")
        elif receipt.failed:
            missing.append(f"{path.name}: {len(receipt.failed)} sequences failed")
            failures += [
                Failure(stage, path.name, f["error"], f["message"], len(f["ids"]))
                for f in receipt.facts["failed"]
            ]
        receipts = _parts(layout, path) if isinstance(receipt, str) else [receipt]
        done += min(file.rows, sum(_rows(r) for r in receipts))
        own = [r for r in receipts if r.seconds > 0]
        timed += sum(_rows(r) for r in own)
        seconds += sum(r.seconds for r in own)
    total = sum(file.rows for file in files)
    whole = len(files) - len(missing)
    progress = Progress(stage, whole, len(files), done, total, tuple(missing), seconds, timed)
    return progress, failures


def _parts(layout: Layout, features: Path) -> list[Receipt]:
    """Receipts of the finished spans of a feature file."""
    folder = features.with_suffix(".parts")
    found = [look(layout, path, frozenset()) for path in sorted(folder.glob("*.done"))]
    return [receipt for receipt in found if isinstance(receipt, Receipt)]


def _rows(receipt: Receipt) -> int:
    return sum(output.rows for output in receipt.outputs)


def _merged(layout: Layout, removed: frozenset[Path], splitting: Receipt | str) -> Progress:
    if isinstance(splitting, str):
        return Progress("merging", 0, None)
    files, missing = int(splitting.facts["files"]), []
    for number in range(1, files + 1):
        path = layout.merged(number)
        receipt = look(layout, path.with_name(path.name + ".done"), removed)
        if isinstance(receipt, str):
            missing.append(f"{path.name}: {receipt}")
    return Progress("merging", files - len(missing), files, missing=tuple(missing))
