"""Arrays of repeats: satellites, clusters of PE and PPE genes, CRISPR, integrons with their attC.

The repeats may be diverged, and other bases may lie between two of them, as the cassettes of an
integron do. Tantan (Frith 2011, Nucleic Acids Res 39:e23) finds them when it may look far back.
"""

from __future__ import annotations

import numpy as np

from virnucpro.metrics import Bools, Ints

# How far back a copy may be, in bases, and how far apart arrays begin; no distance is much likelier
# than another. Chosen by examples/lite/repeats.py, as the numbers below.
FARTHEST_COPY = 2000
DECAY = 0.9995  # how much less likely a copy is that is one base farther back
ARRAYS_PER_BASE = 1e-4
WINDOW = 10_000  # bases
MOST_REPEATED = 0.12  # share of the bases of a window


def in_arrays(sequence: str, places: Ints) -> Bools:
    """Return which ``places`` ``[n]``, in bases, lie in arrays of repeats.

    Around them, a share of ``MOST_REPEATED`` or more of the ``WINDOW`` bases of ``sequence`` is
    repeated, or of all of them where there are fewer.
    """
    from pydustmasker import TantanMasker  # most records have no region

    size, window = len(sequence), min(WINDOW, len(sequence))
    repeats = TantanMasker(
        sequence, max_period=FARTHEST_COPY, decay=DECAY, repeat_start=ARRAYS_PER_BASE
    )
    is_repeated = np.zeros(size + 1, np.int64)  # of the base before
    for start, stop in repeats:
        is_repeated[start + 1 : stop + 1] = 1
    before = is_repeated.cumsum()
    first = np.clip(places - window // 2, 0, size - window)
    found: Bools = before[first + window] - before[first] >= MOST_REPEATED * window
    return found
