"""What every training does before and after its loop: files, an earlier start, and the end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from virnucpro.contracts import Device, Json
from virnucpro.events import Emit, Notice
from virnucpro.store.disk import Disk
from virnucpro.store.work import WorkIdentity, check_same, checked_again
from virnucpro.training.loop import MakeLoop, Savepoint, load_savepoint, save_savepoint
from virnucpro.training.processes import train_on


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
    point, known = None, finished
    if force:
        known = None
        for path in (files.savepoint, *files.results):
            disk.clear(path)
    elif files.savepoint.exists():
        point = load_savepoint(files.savepoint)
        known = point.identity
    if known:
        wanted, earlier = WorkIdentity(files.label, identity), WorkIdentity(files.label, known)
        check_same(wanted, earlier, files.place, files.option)
        if point is None and all(path.exists() for path in files.results):
            show(Notice("info", checked_again(files.label)))
            return None
        show(Notice("info", f"going on with {files.label}"))
    if point is None:
        point = Savepoint(dict(identity))
        save_savepoint(files.savepoint, point, disk)
    return point


def run_training(
    make_loop: MakeLoop, savepoint: Path, devices: Sequence[Device], report: Emit
) -> Savepoint:
    """Train to the end on one process per device, and return the finished savepoint."""
    if epoch := load_savepoint(savepoint).epoch:
        report(Notice("info", f"going on in epoch {epoch + 1}"))
    train_on(make_loop, devices, report)
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
