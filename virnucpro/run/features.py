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
from virnucpro.formatting import byte_size
from virnucpro.layout import MOLECULES, Layout
from virnucpro.run.run import Run, feature_bytes

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
    total, missing, free = feature_bytes(run)
    if run.features != "dropped" and not begun and missing <= free:
        return None
    pending = _without_scores(run)
    if not run.frames or not (pending or begun):
        return None
    features = (path for number in pending for path in _features(run.layout, number))
    run.ledger.forget_removed(frozenset(features))
    if pending:
        most = min(MOST_FRAMES, int(free * SHARE / run.bytes_per_frame))
        emit(
            Notice(
                "info",
                f"the features of {sum(run.frames):,} frames take {byte_size(total)} "
                f"({byte_size(free)} are free): they are not kept, but removed when they are "
                f"scored, at most {most:,} at a time",
            )
        )
    return pending


def next_window(runs: Sequence[Run]) -> dict[Run, list[int]]:
    """Take the next split files to score together, by run; none after the last ones."""
    window: dict[Run, list[int]] = {}
    room = 0
    for run in (run for run in runs if run.unscored):
        frames = run.frames
        free = shutil.disk_usage(run.layout.root).free
        if not window:
            room = min(MOST_FRAMES, int(free * SHARE / run.bytes_per_frame))
        taken: list[int] = []
        while run.unscored and (frames[run.unscored[0] - 1] <= room or not (window or taken)):
            taken.append(run.unscored.pop(0))
            room -= frames[taken[-1] - 1]
        if taken:
            window[run] = taken
        count = sum(frames[number - 1] for number in taken)
        needed = count * run.bytes_per_frame
        if needed > free:
            raise OutputError(
                f"{run.layout.root} has {byte_size(free)} free, but the features of {count:,} "
                f"frames take {byte_size(needed)}: free some space or move the folder, then run "
                f"the same command again"
            )
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


def _without_scores(run: Run) -> list[int]:
    """Return the numbers of the split files whose scores are not proved.

    There are none where the table of predictions itself is proved.
    """
    by_file = [(stage, own) for stage in run.stages if (own := stage.by_file())]
    files = proved = list(range(1, len(run.frames) + 1))
    features_proved = files
    for _, own in by_file:
        features_proved, tasks = proved, own.plan(run.ledger)
        proved = [number for number in proved if not run.ledger.check(tasks[number - 1])]
    if features_proved == files:
        (task,) = by_file[-1][0].plan(run.ledger)
        if not run.ledger.check(task):
            return []
    return sorted(set(files) - set(proved))


def _features(layout: Layout, number: int) -> list[Path]:
    """Return the feature files of a split file, whether they exist or not."""
    return [*(layout.features(molecule, number) for molecule in MOLECULES), layout.merged(number)]
