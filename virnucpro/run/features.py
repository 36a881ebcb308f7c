"""How long features are kept: to the end of the run, or until they are scored.

Of a run that does not keep them, only the features of some split files exist at the same time.
When the files have scores, their features are removed, and their receipts are kept, as those
of a finished run do. No result depends on which files go together.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from virnucpro.contracts import SPLITTING, Stage, Task
from virnucpro.errors import OutputError
from virnucpro.events import Emit, Notice
from virnucpro.formatting import byte_size
from virnucpro.layout import MOLECULES, Layout
from virnucpro.run.files import missing_bytes
from virnucpro.store.ledger import Ledger

Features = Literal["kept", "auto", "dropped"]
"""How long features are kept: to the end, or until they are scored; auto looks at the disk."""

# The features that exist at the same time take an eighth of the free space, and are those of at
# most so many frames: 27 GB with the released models. They take minutes to embed on eight GPUs, and
# models seconds to load, once for them.
SHARE = 1 / 8
MOST_FRAMES = 1_000_000


def files_to_score(
    layout: Layout, stages: Sequence[Stage], features: Features, ledger: Ledger, emit: Emit
) -> list[int] | None:
    """Return the split files without scores, of a run that drops features; None for any other.

    Those are runs that are asked to, those whose features the disk cannot hold, and those of which
    an earlier start has scored files. To be called when the split files are there.
    """
    needs = [need for stage in stages if (need := stage.disk_need(ledger))]
    begun = bool(layout.score_files())
    if not needs or (features == "kept" and not begun):
        return None
    total = sum(need.bytes for need in needs)
    free = shutil.disk_usage(layout.root).free
    if features != "dropped" and not begun and missing_bytes(layout, total) <= free:
        return None
    pending = _without_scores(layout, stages, ledger)
    if not frames_of_files(layout, ledger) or not (pending or begun):
        return None
    ledger.forget_removed(frozenset(path for n in pending for path in _features(layout, n)))
    if pending:
        most = frames_per_window(layout, stages, ledger)
        emit(
            Notice(
                "info",
                f"{needs[0].purpose} take {byte_size(total)} ({byte_size(free)} are free): they "
                f"are not kept, but removed when they are scored, at most {most:,} at a time",
            )
        )
    return pending


def frames_of_files(layout: Layout, ledger: Ledger) -> list[int]:
    """Return the number of frames of each split file."""
    folder = layout.folder("nucleotide")
    return [file.rows for file in ledger.outputs(SPLITTING) if file.path.parent == folder]


def frames_per_window(layout: Layout, stages: Sequence[Stage], ledger: Ledger) -> int:
    """Return of how many frames the features may exist at the same time."""
    free = shutil.disk_usage(layout.root).free
    return min(MOST_FRAMES, int(free * SHARE / _bytes_per_frame(layout, stages, ledger)))


def check_window(layout: Layout, stages: Sequence[Stage], ledger: Ledger, frames: int) -> None:
    """Raise OutputError where the disk cannot hold the features of so many frames."""
    needed = frames * _bytes_per_frame(layout, stages, ledger)
    free = shutil.disk_usage(layout.root).free
    if needed > free:
        raise OutputError(
            f"{layout.root} has {byte_size(free)} free, but the features of {frames:,} frames take "
            f"{byte_size(int(needed))}: free some space or move the folder, then run the same "
            f"command again"
        )


def drop_features(layout: Layout, ledger: Ledger, files: Sequence[int]) -> None:
    """Remove the features of scored split files, but for files of which a sequence failed."""
    receipts = dict(ledger.receipts())
    removed = []
    for number in files:
        paths = [path.with_name(f"{path.name}.done") for path in _features(layout, number)]
        of_file = [(path, receipts[path]) for path in paths if path in receipts]
        if not any(receipt.failed for _, receipt in of_file):
            removed += of_file
    ledger.remove(removed, frozenset())


def _bytes_per_frame(layout: Layout, stages: Sequence[Stage], ledger: Ledger) -> float:
    total = sum(need.bytes for stage in stages if (need := stage.disk_need(ledger)))
    return total / sum(frames_of_files(layout, ledger))


def _without_scores(layout: Layout, stages: Sequence[Stage], ledger: Ledger) -> list[int]:
    """Return the numbers of the split files whose scores are not proved.

    There are none where the table of predictions itself is proved.
    """
    by_file = [(stage, own) for stage in stages if (own := stage.by_file())]
    *of_features, (prediction, scoring) = by_file
    files = list(range(1, len(frames_of_files(layout, ledger)) + 1))
    proved = files
    for _, own in of_features:
        proved = _proved(own.plan(ledger), proved, ledger)
    scored = _proved(scoring.plan(ledger), proved, ledger)
    if proved == files:
        (task,) = prediction.plan(ledger)
        if not ledger.check(task):
            return []
    return sorted(set(files) - set(scored))


def _proved(tasks: Sequence[Task], files: Sequence[int], ledger: Ledger) -> list[int]:
    return [number for number in files if not ledger.check(tasks[number - 1])]


def _features(layout: Layout, number: int) -> list[Path]:
    """Return the feature files of a split file, whether they exist or not."""
    return [*(layout.features(molecule, number) for molecule in MOLECULES), layout.merged(number)]
