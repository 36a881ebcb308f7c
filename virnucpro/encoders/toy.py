"""Encoders without weights: for tests of the pipeline, and for model type ``toy``.

Plain arithmetic on the composition of a sequence. Each number is made of counts, one division, one
product and one sum: it is the same to the bit on every machine, in any batch. These embeddings
know nothing about biology.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from virnucpro.contracts import Molecule
from virnucpro.encoders.family import (
    BASES,
    RESIDUES,
    EncoderFamily,
    EncoderSource,
    OpenOptions,
    WeightlessEncoder,
)

DIM = 16
_SEED = 20240601  # any number; the constants only have to be the same everywhere
_BASE_CODES = np.zeros(256, np.uint8)  # A, and every letter that is not a base, is 0
_BASE_CODES[np.frombuffer(b"CGTcgt", np.uint8)] = [1, 2, 3, 1, 2, 3]


class ToyEncoder(WeightlessEncoder):
    """Frequencies of pairs of bases, or of groups of residues, stretched by fixed factors."""

    dim = DIM

    def __init__(self, molecule: Molecule, truncation: int | None) -> None:
        super().__init__(truncation)
        self._molecule = molecule
        random = np.random.RandomState(_SEED)  # its stream is frozen for good, unlike Generator's
        self._factor = random.choice([-8.0, -4.0, 4.0, 8.0], DIM)
        self._groups = random.randint(0, DIM, 256).astype(np.uint8)

    def embed(self, sequences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Count each sequence in bins, all sequences of the batch in one pass."""
        letters = np.frombuffer("".join(sequences).encode("ascii", "replace"), np.uint8)
        lengths = np.array([len(text) for text in sequences])
        bins: npt.NDArray[np.uint8]
        if self._molecule == "protein":
            bins = self._groups[letters]
        else:
            bases = _BASE_CODES[letters]
            bins = bases * np.uint8(4)
            bins[:-1] |= bases[1:]  # pairs; the last of a sequence reaches into the next one
            ends = np.cumsum(lengths)[lengths > 0] - 1
            bins[ends] = bases[ends] << 2
        rows = np.repeat(np.arange(len(sequences)) * DIM, lengths)
        counts = np.bincount(rows + bins, minlength=len(sequences) * DIM).reshape(-1, DIM)
        share = counts / np.maximum(lengths, 1)[:, None]
        embedded: npt.NDArray[np.float32] = ((share - 1 / DIM) * self._factor).astype(np.float32)
        return embedded


def _family(molecule: Molecule, alphabet: str) -> EncoderFamily:
    def open_toy(source: EncoderSource, options: OpenOptions) -> ToyEncoder:
        return ToyEncoder(molecule, options.truncation if molecule == "protein" else None)

    return EncoderFamily(
        name=f"toy-{molecule}",
        title="toy",
        molecule=molecule,
        alphabet=alphabet,
        open=open_toy,
        width=DIM,
        precisions=(),
        caution="toy encoders: these scores mean nothing; they only show that the program works",
    )


NUCLEOTIDE, PROTEIN = _family("nucleotide", BASES), _family("protein", RESIDUES)
