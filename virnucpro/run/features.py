"""Runs that do not keep features: which split files are embedded and scored together.

Only the features of some split files exist at the same time. When the files have scores, their
features are removed, and their receipts are kept, as those of a finished run do. No result depends
on which files go together.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from virnucpro.errors import OutputError
from virnucpro.events import Emit, Notice
from virnucpro.formatting import byte_size, counted
from virnucpro.layout import MOLECULES, Layout
from virnucpro.run.run import Run
from virnucpro.store.disk import AGAIN

# The features that exist at the same time take an eighth of the free space, and are those of at
# most so many frames: 27 GB with the released models. They take minutes to embed on eight GPUs, and
# models seconds to load, once for them.
SHARE = 1 / 8
MOST_FRAMES = 1_000_000


def files_to_score(run: Run, emit: Emit) -> list[int] | None:
    """Return the split files without scores, of a run that drops features; None for any other.

    Those are runs that are asked to, those whose features the disk cannot hold, and those of which
    an earlier start has scored files. To be called when the split files are there.
    """
    begun = bool(run.layout.score_files())
    if not run.bytes_per_frame or (run.features == "kept" and not begun):
        return None
    free = shutil.disk_usage(run.layout.root).free
    if run.features != "dropped" and not begun and missing_bytes(run) <= free:
        return None
    files = proved = embedded = set(range(1, len(run.frames) + 1))
    for stage in run.stages:
        if own := stage.by_file():
            embedded, tasks = proved, own.plan(run.ledger)
            proved = {number for number in proved if not run.ledger.check(tasks[number - 1])}
            last = stage
    pending = sorted(files - proved)
    if embedded == files and not run.ledger.check(*last.plan(run.ledger)):
        pending = []  # the table of predictions itself is proved
    if not files or not (pending or begun):
        return None
    features = (path for number in pending for path in _features(run.layout, number))
    run.ledger.forget_removed(frozenset(features))
    if pending:
        most = min(MOST_FRAMES, int(free * SHARE / run.bytes_per_frame))
        frames = sum(run.frames)
        emit(
            Notice(
                "info",
                f"the features of {counted(frames, 'frame')} take "
                f"{byte_size(frames * run.bytes_per_frame)} ({byte_size(free)} are free): they are "
                f"not kept, but removed when they are scored, at most {most:,} at a time",
            )
        )
    return pending


def missing_bytes(run: Run) -> int:
    """Return what the features of a run still take on the disk, where all are kept."""
    present = sum(path.stat().st_size for path in run.layout.feature_files())
    return max(0, sum(run.frames) * run.bytes_per_frame - present)


def require_space(run: Run, needed: int, frames: int) -> None:
    """Raise OutputError where the disk does not have the bytes that the features of frames need."""
    free = shutil.disk_usage(run.layout.root).free
    if needed > free:
        raise OutputError(
            f"{run.layout.root} has {byte_size(free)} free, but the features of "
            f"{counted(frames, 'frame')} need {byte_size(needed)}: free some space or move the "
            f"folder, then {AGAIN}"
        )


def next_window(runs: Sequence[Run]) -> dict[Run, list[int]]:
    """Take the next split files to score together, by run; none after the last ones."""
    window: dict[Run, list[int]] = {}
    room = 0
    for run in (run for run in runs if run.unscored):
        frames, taken = run.frames, list[int]()
        if not window:
            free = shutil.disk_usage(run.layout.root).free
            room = min(MOST_FRAMES, int(free * SHARE / run.bytes_per_frame))
        while run.unscored and (frames[run.unscored[0] - 1] <= room or not (window or taken)):
            taken.append(run.unscored.pop(0))
            room -= frames[taken[-1] - 1]
        if taken:
            window[run] = taken
            count = sum(frames[number - 1] for number in taken)
            require_space(run, count * run.bytes_per_frame, count)
    return window


def drop_features(run: Run, files: Sequence[int]) -> None:
    """Remove the features of scored split files, but for files of which a sequence failed."""
    receipts = dict(run.ledger.receipts())
    removed = []
    for number in files:
        paths = [path.with_name(f"{path.name}.done") for path in _features(run.layout, number)]
        of_file = [(path, receipts[path]) for path in paths if path in receipts]
        if not any(receipt.failed for _, receipt in of_file):
            removed += of_file
    run.ledger.remove(removed)


def _features(layout: Layout, number: int) -> list[Path]:
    """Return the feature files of a split file, whether they exist or not."""
    return [*(layout.features(molecule, number) for molecule in MOLECULES), layout.merged(number)]
