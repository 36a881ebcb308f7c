"""Where the numbers of a protein come from: stored features, or a table of residues.

``rcl embed`` stores features of ESM-2 in a folder, as files ``features_0001.safetensors``. Each has
one tensor per protein, float16 ``[L, width]``, by the SHA-256 of its sequence, the shortest
proteins first; its metadata names the encoder and the precision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open

from virnucpro.compute.threads import one_thread
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import locate
from virnucpro.errors import InputError, UsageError
from virnucpro.formatting import counted
from virnucpro.rcl.encodings import ResidueEncoding

KEY = "virnucpro"  # of the metadata
AGAIN = "make it with virnucpro rcl embed --serpins FILE --others FILE"


@dataclass(frozen=True)
class StoredFeatures:
    """Features that ``rcl embed`` stored, read when they are needed; ``name`` is their encoder."""

    files: tuple[Path, ...]
    width: int
    name: str

    def check(self, sequences: Sequence[str]) -> None:
        """Raise InputError where some of the ``sequences`` have no features."""
        missing = {sequence_key(sequence) for sequence in sequences} - _opened(self.files).keys()
        if missing:
            raise InputError(f"without features: {counted(len(missing), 'protein')}; {AGAIN}")

    def encode(self, sequence: str) -> npt.NDArray[np.float32]:
        """Return the features of a protein, float32 ``[len(sequence), width]``."""
        key = sequence_key(sequence)
        with one_thread():
            rows: torch.Tensor = _opened(self.files)[key].get_tensor(key)
            return rows.float().numpy()


ProteinFeatures = ResidueEncoding | StoredFeatures
"""Turns proteins into numbers, which ``name`` and the sequence decide. Picklable."""


@cache
def _opened(files: tuple[Path, ...]) -> dict[str, Any]:
    """Return the open file of each protein, by its key, once per process."""
    found: dict[str, Any] = {}
    for path in files:
        try:
            file = safe_open(path, "pt")
            found |= dict.fromkeys(file.keys(), file)  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path} cannot be read ({error}): {AGAIN}") from error
    return found


def sequence_key(sequence: str) -> str:
    """Return the name of a protein in a file of features."""
    return hashlib.sha256(sequence.encode()).hexdigest()[:32]


def open_features(folder: Path) -> StoredFeatures:
    """Find the features that ``rcl embed`` stored in a folder."""
    files = tuple(sorted(folder.absolute().glob("features_*.safetensors")))
    if not files:
        raise UsageError(f"{folder} has no features: {AGAIN}")
    key, file = next(iter(_opened(files).items()))
    width = int(file.get_slice(key).get_shape()[1])
    return StoredFeatures(files, width, (file.metadata() or {}).get(KEY, ""))


def locate_esm2(name: str) -> EncoderSource:
    """Find an ESM-2 model. Raises UsageError for others: they have no features per residue."""
    source = locate(name, "protein")
    if source.family != "esm2":
        raise UsageError(f"{source.name} is not an ESM-2 model: features per residue need one")
    return source
