"""Runs that do not keep features: which split files are embedded and scored together.

The features of a window of split files are there at the same time. When the files have scores,
their features are removed and stand in the archive of the run, as those of a finished run do.
Nothing that decides results depends on the windows.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

from virnucpro.contracts import SPLITTING, DiskNeed, FeatureWindow, Stage
from virnucpro.errors import OutputError
from virnucpro.events import Emit, Notice, StageAhead
from virnucpro.formatting import byte_size
from virnucpro.layout import MOLECULES, Layout
from virnucpro.run.files import missing_bytes
from virnucpro.store.ledger import Ledger

Features = Literal["kept", "auto", "dropped"]
"""How long features are kept: to the end, or until they are scored; auto looks at the disk."""

# A window takes an eighth of the free space, and at most so many frames: 27 GB with the released
# models. They take minutes to embed on eight GPUs, and models seconds to load, once per window.
SHARE = 1 / 8
MOST_FRAMES = 1_000_000


class FeatureWindows:
    """The windows of one run.

    Attributes:
        present: the window that is being worked on; None between two.
    """

    def __init__(
        self,
        layout: Layout,
        stages: Sequence[Stage],
        ledger: Ledger,
        pending: Collection[int],
        frame_bytes: float,
    ) -> None:
        """``pending`` are the files without scores; a frame has ``frame_bytes`` of features."""
        self._layout = layout
        self._stages = stages
        self._ledger = ledger
        self._pending = deque(sorted(pending))
        self._rows = rows_of_files(layout, ledger)
        self._frame_bytes = frame_bytes
        self.present: FeatureWindow | None = None

    def most_frames(self) -> int:
        """Return how many frames a window may have now."""
        free = shutil.disk_usage(self._layout.root).free
        return min(MOST_FRAMES, int(free * SHARE / self._frame_bytes))

    def begin(self, room: int, budgets: Mapping[str, int], *, first: bool) -> int:
        """Take the next files into a window, of at most ``room`` frames; returns their number.

        The ``first`` run of a window takes one file in any case.

        Raises:
            OutputError: the disk cannot hold the features of a single file.
        """
        files: list[int] = []
        taken = 0
        while self._pending:
            rows = self._rows[self._pending[0] - 1]
            if taken + rows > room and not (first and not files):
                break
            files.append(self._pending.popleft())
            taken += rows
        if files:
            self._check_space(taken)
            self.present = FeatureWindow(tuple(files), sum(self._rows), budgets)
        return taken

    def _check_space(self, frames: int) -> None:
        root = self._layout.root
        free, needed = shutil.disk_usage(root).free, frames * self._frame_bytes
        if needed > free:
            raise OutputError(
                f"{root} has {byte_size(free)} free, but the features of {frames:,} frames take "
                f"{byte_size(int(needed))}: free some space or move the folder, then run the same "
                f"command again"
            )

    def end(self) -> None:
        """Remove the features of the window, but for files of which a sequence failed."""
        assert self.present is not None
        receipts = dict(self._ledger.receipts())
        removed = []
        for number in self.present.files:
            paths = [
                path.with_name(f"{path.name}.done") for path in _features(self._layout, number)
            ]
            of_file = [(path, receipts[path]) for path in paths if path in receipts]
            if not any(receipt.failed for _, receipt in of_file):
                removed += of_file
        self._ledger.remove(removed, frozenset())
        self.present = None

    def ahead(self, later: Collection[Stage]) -> tuple[StageAhead, ...]:
        """Return what the workers have to do after the present stage, of which ``later`` are."""
        assert self.present is not None
        pending = sum(self._rows[number - 1] for number in self._pending)
        present = sum(self._rows[number - 1] for number in self.present.files)
        follows = {stage.name for stage in later}
        return tuple(
            StageAhead(stage.name, pending + (present if stage.name in follows else 0))
            for stage in self._stages
            if stage.runs_on == "worker"
        )


def feature_windows(
    layout: Layout, stages: Sequence[Stage], features: Features, ledger: Ledger, emit: Emit
) -> FeatureWindows | None:
    """Return the windows of a run that does not keep its features; None for any other.

    Those are runs that are asked not to, those whose features the disk cannot hold, and those of
    which an earlier start has scored files. To be called when the split files are there.
    """
    needs = [need for stage in stages if (need := stage.disk_need(ledger))]
    begun = bool(layout.score_files())
    if not needs or (features == "kept" and not begun):
        return None
    total = sum(need.bytes for need in needs)
    free = shutil.disk_usage(layout.root).free
    if features != "dropped" and not begun and missing_bytes(layout, total) <= free:
        return None
    frames = sum(rows_of_files(layout, ledger))
    pending = _without_scores(layout, stages, ledger)
    if not frames or not (pending or begun):
        return None
    forgotten = (path for number in pending for path in _features(layout, number))
    ledger.forget_removed(frozenset(forgotten))
    windows = FeatureWindows(layout, stages, ledger, pending, total / frames)
    if pending:
        emit(Notice("info", _explanation(needs[0], total, free, windows.most_frames())))
    return windows


def _explanation(need: DiskNeed, total: int, free: int, most: int) -> str:
    return (
        f"{need.purpose} take {byte_size(total)} ({byte_size(free)} are free): they are not kept, "
        f"but removed when they are scored, at most {most:,} at a time"
    )


def rows_of_files(layout: Layout, ledger: Ledger) -> list[int]:
    """Return the number of frames of each split file."""
    folder = layout.folder("nucleotide")
    return [file.rows for file in ledger.outputs(SPLITTING) if file.path.parent == folder]


def _without_scores(layout: Layout, stages: Sequence[Stage], ledger: Ledger) -> list[int]:
    """Return the numbers of the split files whose scores are not proved.

    There are none where the table of predictions itself is proved.
    """
    everything = range(1, len(rows_of_files(layout, ledger)) + 1)
    files = tuple(everything)
    *of_features, prediction = [stage for stage in stages if stage.in_windows]
    for stage in of_features:
        files = _proved(stage, files, ledger)
    scored = set(_proved(prediction, files, ledger))
    if len(files) == len(everything):
        (task,) = prediction.plan(ledger)
        if not ledger.check(task).stale:
            return []
    return [number for number in everything if number not in scored]


def _proved(stage: Stage, files: tuple[int, ...], ledger: Ledger) -> tuple[int, ...]:
    tasks = stage.within(FeatureWindow(files, 0, {})).plan(ledger)
    return tuple(n for n, task in zip(files, tasks, strict=True) if not ledger.check(task).stale)


def _features(layout: Layout, number: int) -> list[Path]:
    """Return the feature files of a split file, whether they exist or not."""
    return [*(layout.features(molecule, number) for molecule in MOLECULES), layout.merged(number)]
