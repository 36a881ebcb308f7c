"""Where the numbers of a protein come from: a table of residues, stored features, or an ESM-2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.contracts import Device
from virnucpro.encoders.esm2 import Esm2Encoder
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import open_encoder
from virnucpro.errors import UsageError
from virnucpro.precision import choose_precision
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


class ResidueFeatures:
    """An ESM-2 model that computes features where they are needed.

    It is loaded when it is first called; until then it can be sent to a process.
    """

    def __init__(self, source: EncoderSource, longest: int) -> None:
        """``longest`` is the number of residues of a sequence that count.

        Raises:
            UsageError: ``source`` is not an ESM-2 model.
        """
        if source.family != "esm2":
            raise UsageError(f"{source.name} is not an ESM-2 model: features per residue need one")
        self._source, self._longest = source, longest
        self._device = Device("cpu")
        self._encoder: Esm2Encoder | None = None

    def settle(self, device: Device) -> None:
        """Compute on ``device`` from now on."""
        if device != self._device:
            self._device, self._encoder = device, None

    def __call__(self, sequences: Sequence[str]) -> list[npt.NDArray[np.float32]]:
        """Return the features of each sequence, float32 ``[L, width]``.

        Raises:
            ModelError: the model cannot be loaded.
        """
        if self._encoder is None:
            precision = choose_precision("auto", [self._device])
            encoder = open_encoder(
                self._source,
                self._device.kind,
                precision,
                budget=None,
                truncation=self._longest,
            )
            assert isinstance(encoder, Esm2Encoder)
            self._encoder = encoder
        rows = self._encoder.encode_residues(sequences, lambda sequences, tokens: None)
        # As they are stored, and as a network is trained on them.
        return [row.to(torch.float16).float().numpy() for row in rows]
