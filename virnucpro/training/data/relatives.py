"""Near-identical genomes, found by the 31-mers they share.

A k-mer counts as itself or its reverse complement, whichever is the smaller number. Only those
whose hash falls below 1/16 of its range are kept (FracMinHash, the "scaled" of sourmash: Irber et
al. 2022, doi:10.1101/2022.01.11.475838): the same ones in every genome, so that a share of the
sample is a share of the whole. One rate holds for all genomes, because both sides of a comparison
need the same. A genome of 2,000 bases has some 120 sampled 31-mers. Where it shares a tenth of them
with others, its sample shows more than 5 % with a probability of 0.97 (binomial); at 500 bases, 29
sampled 31-mers, of 0.80. A fifth of the 31-mers, which is what genomes with 95 % equal bases
share, is seen with 0.99 at 500 bases too; below that, chance decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

K = 31  # the longest that fits into 64 bits with an odd length, so that none is its own complement
SCALED = 16
BLOCK = 1 << 20  # bases hashed at a time: some 60 MB of work space

Sketch = npt.NDArray[np.uint64]

_CODE = np.full(256, 4, np.uint8)
for _number, _base in enumerate(b"ACGT"):
    _CODE[_base] = _CODE[_base + 32] = _number


def sketch(sequence: str) -> Sketch:
    """The sampled canonical 31-mers of ``sequence`` (ASCII): sorted, each once, ``[n]``."""
    codes = _CODE[np.frombuffer(sequence.encode("ascii"), np.uint8)]
    found = [
        _sampled(codes[start : start + BLOCK + K - 1])
        for start in range(0, max(len(codes) - K + 1, 0), BLOCK)
    ]
    return union(found)


def union(sketches: Iterable[Sketch]) -> Sketch:
    """All 31-mers of several sketches: sorted, each once."""
    several = list(sketches)
    return np.unique(np.concatenate(several)) if several else np.empty(0, np.uint64)


def shares(
    genomes: Iterable[tuple[str, Sequence[Sketch]]], held: Sketch
) -> Iterator[tuple[str, float]]:
    """What fraction of each genome's sampled 31-mers is among those ``held`` (sorted).

    ``genomes`` are names with the sketches of their records; one without 31-mers shares none.
    """
    for name, records in genomes:
        own = union(records)
        if len(own) and len(held):
            places = np.minimum(np.searchsorted(held, own), len(held) - 1)
            yield name, float((held[places] == own).mean())
        else:
            yield name, 0.0


def _sampled(codes: npt.NDArray[np.uint8]) -> Sketch:
    """Hashes of the sampled canonical 31-mers of bases 0 to 3; 4 is in none."""
    count = len(codes) - K + 1
    # Words of 1, 2, 4, 8, 16 bases: two neighbours make one of twice the width. In ``reverse``,
    # the complement, the first base is the lowest digit.
    forward = (codes & 3).astype(np.uint64)
    reverse = np.uint64(3) - forward
    for width in (1, 2, 4, 8):
        shift = np.uint64(2 * width)
        forward = (forward[:-width] << shift) | forward[width:]
        reverse = reverse[:-width] | (reverse[width:] << shift)
    # 31 bases: a word of 16, and the one 15 bases on less its first base, which is in both.
    last = slice(15, 15 + count)
    forward = (forward[:count] << np.uint64(30)) | (forward[last] & np.uint64(4**15 - 1))
    reverse = reverse[:count] | ((reverse[last] >> np.uint64(2)) << np.uint64(32))
    unknown = np.concatenate(([0], np.cumsum(codes == 4)))
    whole = unknown[K:] == unknown[:-K]
    hashes = _hashed(np.minimum(forward, reverse)[whole])
    return np.unique(hashes[hashes < np.uint64(2**64 // SCALED)])


def _hashed(words: Sketch) -> Sketch:
    """A mix of the bits, so that the sample depends on all of them."""
    mixed = words * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> np.uint64(29)
    return mixed
