"""Which sequences are the same as an earlier one."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import numpy.typing as npt

DIGEST_BYTES = 16  # two different ones among 1e9 are equal with a probability of 1e-21
SORTED_AT_A_TIME = 1 << 22  # digests; sorting takes 60 bytes for each of them


def digest(*texts: str) -> bytes:
    """Return the digest of texts without line feeds: the same for the same texts only."""
    return blake2b("\n".join(texts).encode(), digest_size=DIGEST_BYTES).digest()


def first_places(digests: bytearray) -> npt.NDArray[np.uint32]:
    """Return for each of the joined ``digests`` the place of the first one that is equal.

    Places count from 0; that of a digest without an earlier equal one is its own. Takes 4 bytes per
    digest, and what a part of them needs to be sorted.
    """
    keys = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    firsts = np.arange(len(keys), dtype=np.uint32)
    parts = -(-len(keys) // SORTED_AT_A_TIME)
    for part in range(parts):  # equal digests are in the same part
        places = np.flatnonzero(keys[:, 0] % np.uint64(parts) == part)
        some = keys[places]
        order = np.lexsort((some[:, 1], some[:, 0]))  # stable: equal ones stay in their order
        some, places = some[order], places[order]
        differs = np.ones(len(some), bool)
        differs[1:] = (some[1:] != some[:-1]).any(axis=1)
        leaders = np.maximum.accumulate(np.where(differs, np.arange(len(some)), 0))
        firsts[places] = places[leaders]
    return firsts
