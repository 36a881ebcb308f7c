"""An encoder of another package: how often each word of four bases occurs in a frame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.family import BASES, EncoderFamily, WeightlessEncoder

K = 4
WORDS: int = 4**K
UNKNOWN = 4  # the code of every letter that is not a base
CODES = np.full(256, UNKNOWN, np.int64)
CODES[np.frombuffer(BASES.encode(), np.uint8)] = range(4)


class KmerEncoder(WeightlessEncoder):
    """Frequencies of the 256 words of four bases, multiplied by 256 so that 1 is the average."""

    dim = WORDS

    def embed(self, sequences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed a batch: float32 ``[len(sequences), 256]``."""
        rows = np.zeros((len(sequences), WORDS), np.float32)
        for row, sequence in zip(rows, sequences, strict=True):
            codes = CODES[np.frombuffer(sequence.encode("ascii", "replace"), np.uint8)]
            if len(codes) >= K:
                windows = np.lib.stride_tricks.sliding_window_view(codes, K)  # [positions, K]
                known = windows[(windows != UNKNOWN).all(axis=1)]
                words = known @ 4 ** np.arange(K)[::-1]  # the number of each word
                row += np.bincount(words, minlength=WORDS) * WORDS / max(1, len(words))
        return rows


FAMILY = EncoderFamily(
    name="kmer-4",  # the name of the entry point, and what users write
    title="4-mer frequencies",
    molecule="nucleotide",
    alphabet=BASES,
    width=WORDS,  # of an embedding; a number, for there are no files to read it from
    open=lambda source, options: KmerEncoder(),
    precisions=(),  # --precision has no effect on it
)
