"""Near-identical genomes, found by the 31-mers that they share.

A 31-mer and its reverse complement count as one: the smaller number of the two. Only 31-mers whose
hash lies below 1/16 of its range are kept (FracMinHash, the "scaled" of sourmash: Irber et al.
2022, doi:10.1101/2022.01.11.475838). They are the same ones in every genome, so the shared fraction
of the samples estimates the shared fraction of the genomes. All genomes are sampled at one rate,
because both sides of a comparison need the same. A genome of 2,000 bases has some 120 sampled
31-mers. If it shares a tenth of them with others, its sample shows more than 5 % with a probability
of 0.97 (binomial); at 500 bases, with 29 sampled 31-mers, the probability is 0.80. Genomes with
95 % equal bases share a fifth of their 31-mers; at 500 bases that is seen with a probability of
0.99. For shorter genomes, chance decides.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

K = 31  # the largest odd length that fits into 64 bits; odd, so that no 31-mer is its complement
SCALED = 16
BLOCK = 1 << 20  # bases hashed together: some 60 MB of work space

Sketch = npt.NDArray[np.uint64]

_CODE = np.full(256, 4, np.uint8)
for _number, _base in enumerate(b"ACGT"):
    _CODE[_base] = _CODE[_base + 32] = _number


def sketch(sequence: str) -> Sketch:
    """Return the sampled canonical 31-mers of an ASCII ``sequence``: sorted, each once, ``[n]``."""
    codes = _CODE[np.frombuffer(sequence.encode("ascii"), np.uint8)]
    return merge_sketches(
        _sampled_kmers(codes[start : start + BLOCK + K - 1])
        for start in range(0, max(len(codes) - K + 1, 0), BLOCK)
    )


def merge_sketches(sketches: Iterable[Sketch]) -> Sketch:
    """Return all 31-mers of several sketches: sorted, each once."""
    arrays = list(sketches)
    return np.unique(np.concatenate(arrays)) if arrays else np.empty(0, np.uint64)


def shared_fraction(genome: Sketch, held_out: Sketch) -> float:
    """Return the fraction of the 31-mers of ``genome`` that are among those ``held_out``.

    It is 0 if either has none.
    """
    if not len(genome) or not len(held_out):
        return 0.0
    positions = np.minimum(np.searchsorted(held_out, genome), len(held_out) - 1)
    return float((held_out[positions] == genome).mean())


def _sampled_kmers(codes: npt.NDArray[np.uint8]) -> Sketch:
    """Return the hashes of the sampled canonical 31-mers of bases 0 to 3; none contains a 4."""
    count = len(codes) - K + 1
    # Words of 1, 2, 4, 8 and 16 bases: two neighbours make one of twice the width. In ``reverse``,
    # the complement, the first base is the lowest digit.
    forward = (codes & 3).astype(np.uint64)
    reverse = np.uint64(3) - forward
    for width in (1, 2, 4, 8):
        shift = np.uint64(2 * width)
        forward = (forward[:-width] << shift) | forward[width:]
        reverse = reverse[:-width] | (reverse[width:] << shift)
    # 31 bases: a word of 16, and the word 15 bases later without its first base, which is in both.
    last = slice(15, 15 + count)
    forward = (forward[:count] << np.uint64(30)) | (forward[last] & np.uint64(4**15 - 1))
    reverse = reverse[:count] | ((reverse[last] >> np.uint64(2)) << np.uint64(32))
    unknown = np.concatenate(([0], np.cumsum(codes == 4)))
    complete = unknown[K:] == unknown[:-K]
    # Mix the bits, so that the sample depends on all of them.
    hashes = np.minimum(forward, reverse)[complete] * np.uint64(0x9E3779B97F4A7C15)
    hashes ^= hashes >> np.uint64(32)
    hashes *= np.uint64(0xD6E8FEB86659FD93)
    hashes ^= hashes >> np.uint64(29)
    return np.unique(hashes[hashes < np.uint64(2**64 // SCALED)])
