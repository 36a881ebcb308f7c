"""The rule that turns the probabilities of residues into one region per protein."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class RegionRule:
    """When residues above ``threshold`` are the RCL; the defaults are those of RCL-identifier.

    Runs of less than ``min_consecutive`` residues are passed over, and the longest run must have
    ``min_rcl_length``.
    """

    threshold: float = 0.5
    min_consecutive: int = 12
    min_rcl_length: int = 7


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


def find_region(probabilities: npt.NDArray[np.float32], rule: RegionRule) -> Region | None:
    """Return the RCL of a protein; None if no run of residues satisfies the rule.

    ``probabilities`` are float32 ``[L]``, one per residue. The longest run is the RCL, and of
    runs of equal length the first one.
    """
    above = np.concatenate(([False], probabilities > rule.threshold, [False]))
    starts, stops = np.flatnonzero(above[1:] != above[:-1]).reshape(-1, 2).T
    lengths = stops - starts
    lengths[lengths < rule.min_consecutive] = 0
    if not lengths.size or lengths.max() < max(rule.min_rcl_length, 1):
        return None
    longest = int(lengths.argmax())
    start, stop = int(starts[longest]), int(stops[longest])
    return start + 1, stop, float(probabilities[start:stop].mean(dtype=np.float64))
