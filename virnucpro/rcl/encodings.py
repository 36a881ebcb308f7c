"""How a protein becomes numbers: one row per residue, one-hot or its BLOSUM62 scores.

Both encodings, with the order of their columns, are those of RCL-identifier (MIT license), so that
networks trained by it can be used here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
