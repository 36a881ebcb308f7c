"""What counts how much in a lite training: groups by their loss, windows by their GC."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.lite_network import UNKNOWN
from virnucpro.training.lite.genomes import Bases

REMEMBERED_LOSSES = 2000  # windows of a group in the running mean of its loss
GC_EDGES = (0.30, 0.35, 0.40, 0.45, 0.50, 0.55, 0.60, 0.65, 0.70)
MOST_WEIGHT = 4.0  # of a window, and the inverse of the least
REMEMBERED_GC = 20_000  # windows in the running shares of GC


class GroupLosses:
    """The running mean of the loss of each group.

    A group that is told apart worse than others is drawn more often, in the manner of group
    distributionally robust optimization (Sagawa et al. 2020, ICLR). Otherwise groups with the most
    bases decide what is learned, however well they are known already. ``means`` is its state.
    """

    def __init__(self, groups: int) -> None:
        self.means = np.ones(groups)

    def note(self, groups: npt.NDArray[np.int32], losses: npt.NDArray[np.float32]) -> None:
        """Take in the losses of the windows of a batch, and the numbers of their groups."""
        size = len(self.means)
        counts = np.bincount(groups, minlength=size)
        means = np.bincount(groups, losses, minlength=size) / np.maximum(counts, 1)
        self.means += (1 - (1 - 1 / REMEMBERED_LOSSES) ** counts) * (means - self.means)

    def factors(self) -> npt.NDArray[np.float64]:
        """Return how often each group should be drawn, 1 on average: float64 ``[groups]``."""
        return np.asarray(self.means / self.means.mean())


class GcShares:
    """The running shares of the ranges of GC among the windows of either label.

    The viruses of a data set have another GC than its hosts. A network that learns this finds no
    virus of high GC, so a window counts by how rare its label is at its GC. ``shares`` is its
    state.
    """

    def __init__(self) -> None:
        self.shares = np.full((2, len(GC_EDGES) + 1), 1 / (len(GC_EDGES) + 1))

    def weights(
        self, gc: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float32]:
        """Take in a batch, and return what each of its windows counts: float32 ``[n]``.

        ``gc`` are the shares that :func:`gc_of` returns, ``labels`` 0 or 1.
        """
        bins = np.digitize(gc, GC_EDGES)
        for label, shares in enumerate(self.shares):
            chosen = bins[labels == label]
            counts = np.bincount(chosen, minlength=len(shares))
            kept = (1 - 1 / REMEMBERED_GC) ** len(chosen)
            shares *= kept
            shares += (1 - kept) * counts / max(len(chosen), 1)
        wanted = self.shares.mean(axis=0)
        weights = np.clip(wanted / np.maximum(self.shares, 1e-6), 1 / MOST_WEIGHT, MOST_WEIGHT)
        return np.asarray(weights[labels, bins], np.float32)


def gc_of(windows: Bases) -> npt.NDArray[np.float64]:
    """Return the share of G and C among the known bases of windows: uint8 ``[n, L]`` to ``[n]``."""
    known = np.maximum((windows < UNKNOWN).sum(axis=1), 1)
    return np.asarray(((windows == 1) | (windows == 2)).sum(axis=1) / known)
