"""Encoders without weights: for tests of the pipeline, and for model type ``toy``.

Plain arithmetic on the composition of a sequence. Only counts, one division, one product and one
sum a number: exact to the bit on every machine, in any batch. They know nothing about biology.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.contracts import Json, ReportProgress

DIM = 16
BATCH = 2048  # sequences
_VERSION = "virnucpro toy encoder 1"
_SEED = 20240601  # any number; the constants only have to be the same everywhere
_BASES = np.zeros(256, np.uint8)  # A, and everything that is no base, is 0
_BASES[np.frombuffer(b"CGTcgt", np.uint8)] = [1, 2, 3, 1, 2, 3]

Molecule = Literal["nucleotide", "protein"]


def digest(role: Molecule) -> str:
    """What stands for the SHA-256 of the weights."""
    return hashlib.sha256(f"{_VERSION} {role}".encode()).hexdigest()


class ToyEncoder:
    """Frequencies of pairs of bases, or of groups of residues, stretched by fixed factors.

    ``truncation`` is how much of a sequence is read; None reads all of it.
    """

    waited = 0.0

    def __init__(self, role: Molecule, truncation: int | None) -> None:
        self._role = role
        self._truncation = truncation
        random = np.random.RandomState(_SEED)  # its stream is frozen for good, unlike Generator's
        self._factor = random.choice([-8.0, -4.0, 4.0, 8.0], DIM)
        self._groups = random.randint(0, DIM, 256).astype(np.uint8)

    @property
    def dim(self) -> int:
        """16."""
        return DIM

    def encode(self, sequences: Sequence[str], report: ReportProgress) -> torch.Tensor:
        """float32 ``[n, 16]``. A token is a letter."""
        out = torch.empty(len(sequences), DIM)
        for start in range(0, len(sequences), BATCH):
            batch = [text[: self._truncation] for text in sequences[start : start + BATCH]]
            out[start : start + BATCH] = torch.from_numpy(self._embed(batch))
            report(len(batch), sum(map(len, batch)))
        return out

    def facts(self) -> Mapping[str, Json]:
        """Nothing to choose: its batches are the same everywhere."""
        return {"budget": BATCH, "unit": "sequences", "found": "default"}

    def shrink(self) -> bool:
        """Its batches take no memory worth saving."""
        return False

    def _embed(self, batch: Sequence[str]) -> npt.NDArray[np.float32]:
        """Counts a sequence in bins, all sequences of the batch in one pass."""
        letters = np.frombuffer("".join(batch).encode("ascii", "replace"), np.uint8)
        lengths = np.array([len(text) for text in batch])
        bins: npt.NDArray[np.uint8]
        if self._role == "protein":
            bins = self._groups[letters]
        else:
            bases = _BASES[letters]
            bins = bases * np.uint8(4)
            bins[:-1] |= bases[1:]  # pairs; the last of a sequence reaches into the next one
            ends = np.cumsum(lengths)[lengths > 0] - 1
            bins[ends] = bases[ends] << 2
        rows = np.repeat(np.arange(len(batch)) * DIM, lengths)
        counts = np.bincount(rows + bins, minlength=len(batch) * DIM).reshape(-1, DIM)
        share = counts / np.maximum(lengths, 1)[:, None]
        embedded: npt.NDArray[np.float32] = ((share - 1 / DIM) * self._factor).astype(np.float32)
        return embedded
