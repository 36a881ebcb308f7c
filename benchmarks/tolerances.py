"""How near to fp32 each precision is: what the measurements on a GPU and the tests expect."""

from __future__ import annotations

from typing import NamedTuple


class Tolerance(NamedTuple):
    """What a precision may differ by from fp32."""

    cosine: float  # of an embedding and the same one in fp32, at least
    difference: float  # of a number of an embedding, for ordinary weights (it is -10 to 10 or so)
    score: float  # of a score, which is 0 to 1
    # Share of frames that keep their call, with the tiny models of the reference data, which
    # average less than the released ones.
    same_calls: float


TOLERANCES = {
    # Only the order of sums differs between two programs or devices (cosine 1 - 1e-6).
    "fp32": Tolerance(0.99999, 1e-5, 1e-3, 1.0),
    "bf16": Tolerance(0.995, 0.1, 0.03, 0.985),
    "fp16": Tolerance(0.995, 0.01, 0.03, 1.0),
    "fp8": Tolerance(0.98, 0.3, 0.3, 0.94),
}
