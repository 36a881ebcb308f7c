"""First whether two implementations agree, then how fast each is, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F

from virnucpro.precision import PRECISIONS

ROUNDS = 3  # at least; the median of fewer is no better than one

Verdict = Literal["same", "differs", "reference"]


@dataclass(frozen=True)
class Agreement:
    """Rows beside reference rows: the least cosine, the largest difference of a number."""

    cosine: float
    difference: float

    def verdict(self, precision: str) -> Verdict:
        """Whether both are of one model. NaN is not."""
        return "same" if self.cosine >= PRECISIONS[precision].least_cosine else "differs"


def agreement(rows: torch.Tensor, reference: torch.Tensor) -> Agreement:
    """Compare float32 ``[n, dim]`` row by row, in float64."""
    one, other = rows.double(), reference.double()
    cosine = F.cosine_similarity(one, other).min()
    return Agreement(float(cosine), float((one - other).abs().max()))


def in_turns(works: Sequence[Callable[[], object]], seconds: float) -> list[list[float]]:
    """Seconds of every call of every piece of work, all of which take part in every round.

    There are ``ROUNDS`` at least, and until they took ``seconds`` for each piece on average. So a
    machine that is slow for a while is slow for all. Work ends when it is done, also on a GPU.
    """
    spent: list[list[float]] = [[] for _ in works]
    begun = time.perf_counter()
    while len(spent[0]) < ROUNDS or time.perf_counter() - begun < seconds * len(works):
        for work, calls in zip(works, spent, strict=True):
            started = time.perf_counter()
            work()
            calls.append(time.perf_counter() - started)
    return spent
