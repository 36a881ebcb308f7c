"""The merged features of a part with their labels, read from the disk as they are needed.

Every file is mapped, never loaded as a whole: a small data set stays in the system's file cache,
and a large one is read window by window. An epoch takes the shards in random order, as many
together as make a window, and the rows of a window in random order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.errors import InputError
from virnucpro.store.features import DamagedFeaturesError, load_features, map_rows
from virnucpro.training.data.dataset import Dataset, Part

WINDOW_BYTES = 1 << 30  # features in memory, over all processes
BLOCK_ROWS = 8192  # rows that are read together if their order does not matter
RowNumbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PartFeatures:
    """The features of a part, whose files each process maps when it first reads them.

    ``rows`` are those of each file, and ``labels`` (int64 ``[n]``) 1 for virus.
    """

    files: tuple[Path, ...]
    rows: tuple[int, ...]
    width: int
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def _mapped(self) -> list[torch.Tensor]:
        """The rows of each file. InputError where one has changed since it was checked."""
        try:
            mapped = [map_rows(path) for path in self.files]
            if [len(file) for file in mapped] != list(self.rows):
                raise DamagedFeaturesError("feature files have changed")
        except DamagedFeaturesError as error:
            raise InputError(f"{error}: was the data embedded again meanwhile?") from error
        return mapped

    def take(self, rows: RowNumbers) -> torch.Tensor:
        """Return the given rows, in the given order: float32 ``[len(rows), width]``."""
        order = np.argsort(rows, kind="stable")
        sorted_rows, starts = rows[order], np.cumsum([0, *self.rows])
        cuts = np.searchsorted(sorted_rows, starts)
        out = torch.empty(len(rows), self.width)
        for number, file in enumerate(self._mapped):
            in_file = slice(cuts[number], cuts[number + 1])
            file_rows = torch.from_numpy(sorted_rows[in_file] - starts[number])
            out[torch.from_numpy(order[in_file])] = file[file_rows]
        return out

    def blocks(self, start: int, stop: int) -> Iterator[torch.Tensor]:
        """Yield the rows ``start`` to ``stop`` in their order, ``BLOCK_ROWS`` at a time."""
        for first in range(start, stop, BLOCK_ROWS):
            yield self.take(np.arange(first, min(first + BLOCK_ROWS, stop)))


def find_features(dataset: Dataset, part: Part) -> PartFeatures:
    """Read every feature file of ``part`` once, and match its rows with the frames table by id."""

    def unusable(problem: str) -> InputError:
        return InputError(f"{problem}: embed the data again: virnucpro train embed {dataset.root}")

    frames = dataset.frames(part)
    files, rows, labels, width = [], [], [], 0
    for shard in range(1, dataset.shards(part) + 1):
        path = dataset.layout(part).features("merged", shard)
        try:
            features = load_features(path, "merged", mapped=True)
        except DamagedFeaturesError as error:
            raise unusable(f"{path.parent.name}/{error}") from error
        for name in features.ids:
            frame = next((frame for frame in frames if frame.frame == name), None)
            if frame is None:  # those that failed to be embedded were passed over
                raise unusable(f"{path.name} holds frames that are not those of {part}")
            labels.append(int(frame.label == "virus"))
        files.append(path)
        rows.append(len(features.ids))
        width = features.data.shape[1]
    return PartFeatures(tuple(files), tuple(rows), width, np.array(labels, np.int64))


def epoch_windows(
    features: PartFeatures, batch_size: int, seed: int, epoch: int
) -> list[list[RowNumbers]]:
    """Return the order of the rows in an epoch, which is the same on any number of processes.

    The result is a list of windows: rows that are in memory together, cut into batches.
    A last batch of a single row joins the batch before it: batch normalisation needs two rows.
    """
    random = np.random.default_rng([seed, epoch])
    starts = np.concatenate([[0], np.cumsum(features.rows)])
    groups: list[list[int]] = []
    most = max(1, WINDOW_BYTES // (4 * max(features.width, 1)))  # rows of a window
    room = 0
    for shard in random.permutation(len(features.rows)).tolist():
        if not groups or features.rows[shard] > room:
            groups.append([])
            room = most
        groups[-1].append(shard)
        room -= features.rows[shard]
    windows = []
    for group in groups:
        rows = np.concatenate([np.arange(starts[shard], starts[shard + 1]) for shard in group])
        stops = list(range(batch_size, len(rows), batch_size))
        if stops and len(rows) - stops[-1] == 1:
            stops.pop()
        windows.append(np.split(random.permutation(rows), stops))
    return windows
