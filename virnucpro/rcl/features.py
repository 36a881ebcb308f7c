"""Where the numbers of a protein come from: stored features, or a table of residues.

``rcl embed`` stores features of ESM-2 in a folder, as files ``features_0001.safetensors``. Each has
one tensor per protein, float16 ``[L, width]``, by the SHA-256 of its sequence, the shortest
proteins first; its metadata names the encoder and the precision.

The tables, with the order of their columns, are those of RCL-identifier (MIT license), so that
networks trained by it can be used here: one-hot, and the scores of BLOSUM62.
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

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
UNKNOWN = "X"
"""Stands for every letter that is not one of the 20 amino acids, lower case included."""

# BLOSUM62 (Henikoff and Henikoff 1992, doi:10.1073/pnas.89.22.10915). Rows as in AMINO_ACIDS, then
# X as RCL-identifier has it; columns A R N D C Q E G H I L K M F P S T W Y V.
BLOSUM62 = """
A  4 -1 -2 -2  0 -1 -1  0 -2 -1 -1 -1 -1 -2 -1  1  0 -3 -2  0
C  0 -3 -3 -3  9 -3 -4 -3 -3 -1 -1 -3 -1 -2 -3 -1 -1 -2 -2 -1
D -2 -2  1  6 -3  0  2 -1 -1 -3 -4 -1 -3 -3 -1  0 -1 -4 -3 -3
E -1  0  0  2 -4  2  5 -2  0 -3 -3  1 -2 -3 -1  0 -1 -3 -2 -2
F -2 -3 -3 -3 -2 -3 -3 -3 -1  0  0 -3  0  6 -4 -2 -2  1  3 -1
G  0 -2  0 -1 -3 -2 -2  6 -2 -4 -4 -2 -3 -3 -2  0 -2 -2 -3 -3
H -2  0  1 -1 -3  0  0 -2  8 -3 -3 -1 -2 -1 -2 -1 -2 -2  2 -3
I -1 -3 -3 -3 -1 -3 -3 -4 -3  4  2 -3  1  0 -3 -2 -1 -3 -1  3
K -1  2  0 -1 -3  1  1 -2 -1 -3 -2  5 -1 -3 -1  0 -1 -3 -2 -2
L -1 -2 -3 -4 -1 -2 -3 -4 -3  2  4 -2  2  0 -3 -2 -1 -2 -1  1
M -1 -1 -2 -3 -1  0 -2 -3 -2  1  2 -1  5  0 -2 -1 -1 -1 -1  1
N -2  0  6  1 -3  0  0  0  1 -3 -3  0 -2 -3 -2  1  0 -4 -2 -3
P -1 -2 -2 -1 -3 -1 -1 -2 -2 -3 -3 -1 -2 -4  7 -1 -1 -4 -3 -2
Q -1  1  0  0 -3  5  2 -2  0 -3 -2  1  0 -3 -1  0 -1 -2 -1 -2
R -1  5  0 -2 -3  1  0 -2  0 -3 -2  2 -1 -3 -2 -1 -1 -3 -2 -3
S  1 -1  1  0 -1  0  0  0 -1 -2 -2  0 -1 -2 -1  4  1 -3 -2 -2
T  0 -1  0 -1 -1 -1 -1 -2 -2 -1 -1 -1 -1 -2 -1  1  5 -2 -2  0
V  0 -3 -3 -3 -1 -2 -2 -3 -3  3  1 -2  1 -1 -2 -2  0 -3 -1  4
W -3 -3 -4 -4 -2 -2 -3 -2 -2 -3 -2 -3 -1  1 -4 -3 -2 11  2 -3
Y -2 -2 -2 -3 -2 -1 -2 -3  2 -1 -1 -2 -1  3 -3 -2 -2  2  7 -1
X -0.8 -1.1 -0.95 -1.35 -1.65 -0.65 -0.9 -1.75 -0.9 -1.4 -1.3 -0.9 -0.7 -1.3 -1.7 -0.55 -0.7 -1.7 \
-0.85 -1.15
"""


@dataclass(frozen=True)
class ResidueEncoding:
    """Looks each residue up in a table: a row per letter, then one for every other letter."""

    name: str
    table: npt.NDArray[np.float32]

    @property
    def width(self) -> int:
        """Numbers per residue."""
        return int(self.table.shape[1])

    def encode(self, sequence: str) -> npt.NDArray[np.float32]:
        """Return the rows of a protein, float32 ``[len(sequence), width]``."""
        letters = np.frombuffer(sequence.encode("ascii", "replace"), np.uint8)
        return self.table[ROW_OF_BYTE[letters]]


ROW_OF_BYTE = np.full(256, len(AMINO_ACIDS), np.intp)
ROW_OF_BYTE[np.frombuffer(AMINO_ACIDS.encode(), np.uint8)] = np.arange(len(AMINO_ACIDS))

ONE_HOT = ResidueEncoding("onehot", np.eye(len(AMINO_ACIDS) + 1, dtype=np.float32))
BLOSUM = ResidueEncoding(
    "blosum", np.array([row.split()[1:] for row in BLOSUM62.strip().splitlines()], np.float32)
)
RESIDUE_ENCODINGS = {encoding.name: encoding for encoding in (ONE_HOT, BLOSUM)}

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
