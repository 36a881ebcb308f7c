"""Compare the results of implementations, and time them in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F

from virnucpro.benchmark.clocks import Interval
from virnucpro.precision import PRECISIONS

ROUNDS = 3  # at least; the median of fewer is not better than a single measurement
Notify = Callable[[str], None]  # is called with a sentence whenever something begins

Verdict = Literal["same", "differs", "reference"]


@dataclass(frozen=True)
class Agreement:
    """The least cosine of rows and reference rows, and the largest difference of a number."""

    cosine: float
    difference: float

    def verdict(self, precision: str) -> Verdict:
        """Return whether both are of one model. NaN is not."""
        return "same" if self.cosine >= PRECISIONS[precision].least_cosine else "differs"


def compare_rows(rows: torch.Tensor, reference: torch.Tensor) -> Agreement:
    """Compare two float32 ``[n, dim]`` row by row, in float64."""
    one, other = rows.double(), reference.double()
    cosine = F.cosine_similarity(one, other).min()
    return Agreement(float(cosine), float((one - other).abs().max()))


def time_in_turns(
    works: Sequence[Callable[[], object]], seconds: float
) -> Iterator[list[list[Interval]]]:
    """Yield all calls of each of ``works`` so far after every round, in which each is called once.

    So a machine that is slow for a while is slow for all of them. There are at least ``ROUNDS``
    rounds, and more until the calls took ``seconds`` per work on average. A work must return only
    when it is finished, also on a GPU.
    """
    calls: list[list[Interval]] = [[] for _ in works]
    begun = time.perf_counter()
    while len(calls[0]) < ROUNDS or time.perf_counter() - begun < seconds * len(works):
        for work, own_calls in zip(works, calls, strict=True):
            started = time.perf_counter()
            work()
            own_calls.append(Interval(started, time.perf_counter()))
        yield calls
