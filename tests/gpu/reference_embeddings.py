"""What the tests of embeddings share: models of several sizes, sequences, and how near is near."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.encoders import compared
from benchmarks.models import write_dnabert, write_esm2
from tests.unit.encoders.small import quiet
from virnucpro.compute.budget import random_sequences
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.registry import family_named, locate, open_encoder
from virnucpro.precision import PRECISIONS

ROLES = {"esm2": "protein", "dnabert-s": "nucleotide"}
# Each family with each precision that it does not compute in another one.
COMPUTED = [
    (family, precision)
    for family in ROLES
    for precision in PRECISIONS
    if precision not in family_named(family).instead
]
# Heads of 32 and, as those of the released models, of 64.
SMALL = {"esm2": "4x128x2", "dnabert-s": "4x128x2"}
OTHER = {"esm2": "4x128x4", "dnabert-s": "4x96x3"}
WIDE = {"esm2": "3x2560x40", "dnabert-s": "4x768x12"}
REHEARSED = {"esm2": "3x160x5", "dnabert-s": "4x192x3"}  # in place of WIDE on a CPU
# Letters a sequence: whole frames, and what the ends of contigs give; one protein is truncated.
LENGTHS = {
    "esm2": [166] * 8 + [165, 100, 99, 1, 2, 7, 30, 31, 63, 64, 160, 1030],
    "dnabert-s": [498] * 6 + [499, 497, 300, 298, 150, 3, 60, 20, 251],
}
FP32 = 1e-4  # the largest difference of a number; only the order of sums differs


class Models:
    """Models that are written, opened and computed on the CPU when somebody asks for them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._exact: dict[tuple[str, str], torch.Tensor] = {}

    def path(self, family: str, size: str) -> Path:
        """Where the model lies."""
        path = self._folder / f"{family}_{size}.pt"
        if not path.exists():
            (write_esm2 if family == "esm2" else write_dnabert)(path, size, "cpu")
        return path

    def open(
        self, family: str, size: str, device: str, precision: str, budget: int | None = None
    ) -> BatchedEncoder:
        """On ``device``, from its files."""
        source = locate(str(self.path(family, size)), ROLES[family])  # type: ignore[arg-type]
        found = open_encoder(source, device, precision, budget=budget, truncation=1024)
        assert isinstance(found, BatchedEncoder)
        return found

    def exact(self, family: str, size: str) -> torch.Tensor:
        """Embeddings of :func:`sequences`, float32 on the CPU."""
        if (family, size) not in self._exact:
            encoder = self.open(family, size, "cpu", "fp32")
            self._exact[family, size] = encoder.encode(sequences(family), quiet)
        return self._exact[family, size]


def sequences(family: str) -> list[str]:
    """Always the same ones; two with letters that are seldom seen."""
    lengths = LENGTHS[family]
    found = random_sequences(family_named(family).alphabet, lengths, 2 * len(lengths))
    odd = "MXBZUOJ.-*" if family == "esm2" else "ACGTNRYACG"
    return [*found, odd, odd * 5]


def check(rows: torch.Tensor, expected: torch.Tensor, precision: str) -> None:
    """Row by row the same embeddings, as near as ``precision`` lets them be."""
    assert rows.dtype == torch.float32
    assert rows.shape == expected.shape
    assert bool(torch.isfinite(rows).all())
    found = compared(rows, expected, precision)
    assert found["check"] == "same", found
    if precision == "fp32":
        assert found["largest_difference"] < FP32, found
