"""The rule that turns the probabilities of residues into one region per protein."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Region = tuple[int, int, float]
"""First and last residue of an RCL, counted from 1, and their mean probability."""


@dataclass(frozen=True)
class RclResult:
    """What a model says about a protein: the status as in ``STEM_rcl.tsv``, and the RCL.

    ``probabilities`` are float32 ``[L]``, of each residue to belong to the RCL; with a profile, of
    its place in the alignment, and 0 outside the region.
    """

    status: str
    region: Region | None
    probabilities: npt.NDArray[np.float32]


def find_region(
    probabilities: npt.NDArray[np.float32],
    threshold: float,
    min_consecutive: int,
    min_rcl_length: int,
) -> Region | None:
    """Return the RCL of a protein by the rule of RCL-identifier; None where there is none.

    ``probabilities`` are float32 ``[L]``, one per residue. Of the runs of ``min_consecutive``
    residues or more above ``threshold``, the longest is the RCL, and of equal ones the first, if it
    has ``min_rcl_length`` residues.
    """
    above = np.concatenate(([False], probabilities > threshold, [False]))
    starts, stops = np.flatnonzero(above[1:] != above[:-1]).reshape(-1, 2).T
    lengths = stops - starts
    lengths[lengths < min_consecutive] = 0
    if not lengths.size or lengths.max() < max(min_rcl_length, 1):
        return None
    longest = int(lengths.argmax())
    start, stop = int(starts[longest]), int(stops[longest])
    return start + 1, stop, float(probabilities[start:stop].mean(dtype=np.float64))
