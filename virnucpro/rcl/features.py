"""Where the numbers of a protein come from in training: a table of residues, or stored features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from virnucpro.rcl.encodings import RESIDUE_ENCODINGS


class ProteinEncoder(Protocol):
    """Turns proteins into numbers."""

    def encode(self, sequence: str) -> npt.NDArray[np.float32]:
        """Return the rows of a protein, float32 ``[len(sequence), width]``."""
        ...


class ProteinFeatures(Protocol):
    """What is sent to each process, which then opens it. Picklable."""

    @property
    def width(self) -> int:
        """Numbers per residue."""
        ...

    @property
    def identity(self) -> str:
        """What decides the numbers, beside the sequence."""
        ...

    def missing(self, sequences: Sequence[str]) -> list[str]:
        """Return those of ``sequences`` that cannot be encoded."""
        ...

    def opened(self) -> ProteinEncoder:
        """Return what encodes proteins in this process."""
        ...


@dataclass(frozen=True)
class TableFeatures:
    """An encoding that looks each residue up in a table: ``onehot`` or ``blosum``."""

    encoding: str

    @property
    def width(self) -> int:
        """Numbers per residue."""
        return RESIDUE_ENCODINGS[self.encoding].width

    @property
    def identity(self) -> str:
        """The name of the encoding."""
        return self.encoding

    def missing(self, sequences: Sequence[str]) -> list[str]:
        """Return nothing: every letter has its row."""
        return []

    def opened(self) -> ProteinEncoder:
        """Return the encoding."""
        return RESIDUE_ENCODINGS[self.encoding]
