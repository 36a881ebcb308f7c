"""What every training does before and after its loop: files, an earlier start, and the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from virnucpro.contracts import Device, Json
from virnucpro.errors import InputError, ResumeRefusedError
from virnucpro.events import Notice
from virnucpro.executors.signals import Interruption
from virnucpro.store.disk import Disk
from virnucpro.store.work import ExistingWork, WorkIdentity, check_work
from virnucpro.training.curves import keep_scalars
from virnucpro.training.loop import Trainable
from virnucpro.training.processes import train_on
from virnucpro.training.progress import ReportEvent
from virnucpro.training.savepoint import Savepoint, load_savepoint, save_savepoint


@dataclass(frozen=True)
class TrainingFiles:
    """Where a training writes.

    Attributes:
        label: the training in words, for messages.
        place: the folder of the results, for messages.
        results: the files that it writes at its end. The last one is written last, so it shows
            that the training is finished.
        savepoint: the state of an unfinished training.
        lock: the file that the training process locks.
        previous: the folder that takes what ``--force`` moves aside.
        option: what names another place on the command line.
    """

    label: str
    place: Path
    results: Sequence[Path]
    savepoint: Path
    lock: Path
    previous: Path
    option: str = "--output-dir"


def begin_training(
    files: TrainingFiles,
    identity: Mapping[str, Json],
    finished: Mapping[str, Json] | None,
    disk: Disk,
    show: Callable[[Notice], None],
    *,
    resume: bool = False,
    force: bool = False,
) -> Savepoint | None:
    """Return the savepoint to go on from, which is on the disk; None for a finished training.

    ``identity`` is everything that decides the weights. ``finished`` is the same of the results
    that are there, if they say so.

    Raises:
        UsageError: files that are not ours would be overwritten.
        ResumeRefusedError: the earlier training used other data or settings, or another version of
            the program wrote its savepoint.
        InputError: the savepoint is damaged.
    """
    results = [path for path in files.results if path.exists()]
    existing = ExistingWork(files.place, files.previous, (), results, option=files.option)
    point = None
    if files.savepoint.exists():
        try:
            point = load_savepoint(files.savepoint)
        except (InputError, ResumeRefusedError):
            if not force:
                raise
        # Before a training is over, it has written nothing but its savepoint.
        own_results = results if point is not None and point.finished else []
        existing = replace(
            existing,
            own_files=[*own_results, files.savepoint],
            foreign_files=[path for path in results if path not in own_results],
            identity=WorkIdentity(files.label, point.identity) if point else None,
        )
    elif finished:
        existing = replace(
            existing,
            own_files=results,
            foreign_files=[],
            identity=WorkIdentity(files.label, finished),
            finished=files.results[-1].exists(),
        )
    wanted = WorkIdentity(files.label, identity)
    admission = check_work(wanted, existing, disk, resume=resume, force=force)
    if admission.notice:
        show(Notice("info", admission.notice))
    if admission.decision == "finished":
        return None
    if admission.decision == "continue" and point is not None:
        return point
    point = Savepoint(dict(identity))
    save_savepoint(files.savepoint, point, disk)
    return point


def run_training(
    plan: Trainable,
    devices: Sequence[Device],
    report: ReportEvent,
    interruption: Interruption,
    disk: Disk,
    tensorboard: Path | None = None,
) -> Savepoint:
    """Train to the end on one process per device, and return the finished savepoint.

    The scalars of every epoch are written for TensorBoard to the folder ``tensorboard``.

    Raises:
        RunInterruptedError: a signal arrived; the savepoint holds the state after the last batch.
        VirNucProError: see :func:`train_on`.
    """
    if tensorboard is not None:
        point = load_savepoint(plan.savepoint)
        assert point is not None
        report = keep_scalars(tensorboard, point.history, report, disk)
    with interruption.held():  # leaving it raises, after the savepoint is written
        finished = train_on(plan, devices, report, interruption)
    assert finished
    point = load_savepoint(plan.savepoint)
    assert point is not None
    return point
