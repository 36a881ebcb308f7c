"""What every training does before and after its loop: files, an earlier start, and the end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from virnucpro.contracts import Device, Json
from virnucpro.errors import InputError, ResumeRefusedError
from virnucpro.events import Emit, Notice
from virnucpro.executors.signals import Interruption
from virnucpro.layout import existing_paths
from virnucpro.store.disk import Disk
from virnucpro.store.work import ExistingWork, WorkIdentity, check_work
from virnucpro.training.loop import MakeLoop
from virnucpro.training.processes import train_on
from virnucpro.training.savepoint import Savepoint, load_savepoint, save_savepoint


@dataclass(frozen=True)
class TrainingFiles:
    """Where a training writes; where all ``results`` exist, the training is finished.

    ``label`` is the training in words, and ``option`` what names another place on the command line.
    """

    label: str
    place: Path
    results: Sequence[Path]
    savepoint: Path
    lock: Path
    option: str = "--output-dir"


def begin_training(
    files: TrainingFiles,
    identity: Mapping[str, Json],
    finished: Mapping[str, Json] | None,
    disk: Disk,
    show: Emit,
    *,
    force: bool = False,
) -> Savepoint | None:
    """Return the savepoint to go on from, which is on the disk; None for a finished training.

    ``identity`` is everything that decides the weights. ``finished`` is the same of the results
    that are there, if they say so.
    """
    for path in (*files.results, files.savepoint):
        disk.sweep(path.parent, {path.name})
    results, point, is_over = existing_paths(*files.results), None, False
    own: Sequence[Path] = ()
    known: Mapping[str, Json] | None = None
    if files.savepoint.exists():
        try:
            point = load_savepoint(files.savepoint)
        except (InputError, ResumeRefusedError):
            if not force:
                raise
        known = point.identity if point else None
        # Before a training is over, it has written nothing but its savepoint.
        own = [*(results if point is not None and point.finished else []), files.savepoint]
    elif finished:
        own, known, is_over = results, finished, len(results) == len(files.results)
    existing = ExistingWork(
        files.place,
        files.lock.with_suffix(".previous"),
        own,
        [path for path in results if path not in own],
        WorkIdentity(files.label, known) if known is not None else None,
        is_over,
        files.option,
    )
    wanted = WorkIdentity(files.label, identity)
    decision, notice = check_work(wanted, existing, disk, force=force)
    if notice:
        show(Notice("info", notice))
    if decision == "finished":
        return None
    if decision == "start" or point is None:
        point = Savepoint(dict(identity))
        save_savepoint(files.savepoint, point, disk)
    return point


def run_training(
    make_loop: MakeLoop,
    savepoint: Path,
    devices: Sequence[Device],
    report: Emit,
    interruption: Interruption,
) -> Savepoint:
    """Train to the end on one process per device, and return the finished savepoint."""
    if (point := load_savepoint(savepoint)).epoch or point.batch:
        report(Notice("info", f"going on in epoch {point.epoch + 1}"))
    with interruption.held():  # leaving it raises, after the savepoint is written
        finished = train_on(make_loop, devices, report, interruption)
    assert finished
    return load_savepoint(savepoint)


def how_to_predict(classifier: Path, length: int, encoders: Mapping[str, str]) -> list[str]:
    """Return lines that say how to predict with a classifier for chunks of ``length`` bases.

    ``encoders`` are names or files of encoders, by their keys in the configuration file.
    """
    command = (
        f"virnucpro predict contigs.fa -m custom -p {shlex.quote(str(classifier))} -e {length}"
    )
    if not encoders:
        return [command]
    names = (f"  {key}: {{model_name: {json.dumps(name)}}}" for key, name in encoders.items())
    return [f"{command} -c my.yaml", "with this in my.yaml:", "features:", *names]
