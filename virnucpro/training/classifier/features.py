"""Merged features of a part with their labels, read from the disk as they are needed.

Every file is mapped, never loaded as a whole: a small data set stays in the system's file cache, a
large one is read a window at a time. An epoch goes through the shards in random order, as many at
once as make a window, and through the rows of a window in random order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.errors import InputError
from virnucpro.store.features import DamagedFeaturesError, load_features, map_rows
from virnucpro.training.data.dataset import LABELS, Dataset, LabelledFrame, Part

WINDOW = 1 << 30  # bytes of features in memory, over all processes
BLOCK = 8192  # rows read at a time where their order does not matter
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PartFeatures:
    """The features of a part, found and checked; to be opened by each process.

    Attributes:
        files: merged feature files, in order.
        rows: their numbers of rows.
        width: numbers a row.
        labels: int64 ``[n]``, the index in ``LABELS`` of each row.
        left_out: frames without features: they failed.
    """

    files: tuple[Path, ...]
    rows: tuple[int, ...]
    width: int
    labels: Rows
    left_out: int

    def __len__(self) -> int:
        return len(self.labels)


def survey(dataset: Dataset, part: Part) -> PartFeatures:
    """Read every feature file of ``part`` once, and match its rows with the frames table by id.

    Raises:
        InputError: a file is missing or damaged, or does not belong to the frames.
    """
    frames = dataset.frames(part)
    files, rows, labels, left_out, widths = [], [], [], 0, set()
    for number in range(1, dataset.shards(part) + 1):
        path = dataset.layout(part).merged(number)
        try:
            features = load_features(path, "merged", mapped=True)
        except DamagedFeaturesError as error:
            raise _unusable(dataset, f"{path.parent.name}/{error}") from error
        for name in features.ids:
            kind, skipped = _label_of(name, frames)
            if kind is None:
                raise _unusable(dataset, f"{path.name} holds frames that are not those of {part}")
            labels.append(kind)
            left_out += skipped
        widths.add(features.data.shape[1])
        files.append(path)
        rows.append(len(features.ids))
    left_out += sum(1 for _ in frames)
    if len(widths) > 1:
        raise _unusable(dataset, f"the features of {part} differ in width")
    width = widths.pop() if widths else 0
    return PartFeatures(tuple(files), tuple(rows), width, np.array(labels, np.int64), left_out)


def _label_of(name: str, frames: Iterator[LabelledFrame]) -> tuple[int | None, int]:
    """Label of the next frame called ``name``, and how many stood before it."""
    for skipped, frame in enumerate(frames):
        if frame.frame == name:
            return LABELS.index(frame.label), skipped
    return None, 0


def _unusable(dataset: Dataset, what: str) -> InputError:
    return InputError(f"{what}: embed the data again: virnucpro train embed {dataset.root}")


class OpenFeatures:
    """The rows of a part, mapped into this process."""

    def __init__(self, features: PartFeatures) -> None:
        """Map the files.

        Raises:
            InputError: a file is gone since it was checked.
        """
        try:
            self._data = [map_rows(path) for path in features.files]
        except DamagedFeaturesError as error:
            raise InputError(f"{error}: was the data embedded again meanwhile?") from error
        self._starts = np.concatenate([[0], np.cumsum(features.rows)])
        self._width = features.width
        if [len(data) for data in self._data] != list(features.rows):
            raise InputError("feature files have changed: was the data embedded again meanwhile?")

    def take(self, rows: Rows) -> torch.Tensor:
        """float32 ``[len(rows), width]``: these rows, in this order, read in that of the files."""
        order = np.argsort(rows, kind="stable")
        sorted_rows = rows[order]
        cuts = np.searchsorted(sorted_rows, self._starts)
        out = torch.empty(len(rows), self._width)
        for number, data in enumerate(self._data):
            part = slice(cuts[number], cuts[number + 1])
            inside = torch.from_numpy(sorted_rows[part] - self._starts[number])
            out[torch.from_numpy(order[part])] = data[inside]
        return out

    def blocks(self, start: int, stop: int) -> Iterator[torch.Tensor]:
        """The rows ``start`` to ``stop`` in their order, ``BLOCK`` at a time."""
        for first in range(start, stop, BLOCK):
            yield self.take(np.arange(first, min(first + BLOCK, stop)))


def moments(features: PartFeatures) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and standard deviation ``[width]`` over all rows, in float64; 1 where nothing varies."""
    rows = OpenFeatures(features)
    count = len(features)
    mean = sum(_double(block).sum(axis=0) for block in rows.blocks(0, count)) / count
    square = sum(((_double(block) - mean) ** 2).sum(axis=0) for block in rows.blocks(0, count))
    deviation = np.sqrt(square / count)
    # A column that only rounding moves is no signal, and must not be blown up to one.
    still = deviation <= 1e-6 * np.maximum(np.abs(mean), 1e-6)
    return np.asarray(mean), np.where(still, 1.0, deviation)


def _double(block: torch.Tensor) -> npt.NDArray[np.float64]:
    return block.numpy().astype(np.float64)


@dataclass(frozen=True)
class Window:
    """Rows that are in memory together, in the order of training, cut into batches."""

    batches: tuple[Rows, ...]


def epoch_of(features: PartFeatures, batch_size: int, seed: int, epoch: int) -> list[Window]:
    """The order of an epoch: the same for one seed, on any number of processes.

    A last batch of a single row joins the one before: batch normalisation needs two.
    """
    random = np.random.default_rng([seed, epoch])
    starts = np.concatenate([[0], np.cumsum(features.rows)])
    windows = []
    for shards in _grouped(random.permutation(len(features.rows)), features):
        rows = np.concatenate([np.arange(starts[s], starts[s + 1]) for s in shards])
        windows.append(Window(tuple(_batches(random.permutation(rows), batch_size))))
    return windows


def _grouped(shards: Rows, features: PartFeatures) -> Iterator[list[int]]:
    """Shards whose rows together are at most ``WINDOW`` bytes, or a single one."""
    group: list[int] = []
    size = 0
    for shard in shards.tolist():
        more = features.rows[shard] * features.width * 4
        if group and size + more > WINDOW:
            yield group
            group, size = [], 0
        group.append(shard)
        size += more
    yield group


def _batches(rows: Rows, size: int) -> Iterator[Rows]:
    stops = list(range(size, len(rows), size))
    if stops and len(rows) - stops[-1] == 1:
        stops.pop()
    yield from np.split(rows, stops)


def share_of(rows: int, rank: int, world: int) -> slice:
    """Which of ``rows`` rows one of ``world`` processes takes."""
    return slice(rank * rows // world, (rank + 1) * rows // world)


def shares(batches: Sequence[Rows], rank: int, world: int) -> list[Rows]:
    """A process's rows of each batch."""
    return [batch[share_of(len(batch), rank, world)] for batch in batches]
