"""The toy encoders: the same to the bit, however they are called."""

from __future__ import annotations

import pytest
import torch

from tests.unit.encoders.small import LETTERS, quiet, sequences
from virnucpro.encoders.toy import ToyEncoder

TEXTS = {
    "nucleotide": [*sequences([1, 2, 30, 499, 500, 0, 7], "ACGT"), "NNN", "acgt"],
    "protein": sequences([1, 2, 30, 166, 0, 7], LETTERS),
}


@pytest.mark.parametrize("molecule", ["nucleotide", "protein"])
def test_rows_do_not_depend_on_their_batch(molecule):
    encoder, texts = ToyEncoder(molecule, None), TEXTS[molecule]
    together = encoder.encode(texts, quiet)
    assert together.shape == (len(texts), encoder.dim)
    assert together.dtype == torch.float32
    alone = torch.cat([ToyEncoder(molecule, None).encode([text], quiet) for text in texts])
    assert torch.equal(together, alone)
    assert bool(torch.isfinite(together).all())
    assert len({tuple(row.tolist()) for row in together[2:5]}) == 3


def test_truncation_and_report():
    seen: list[tuple[int, int]] = []
    rows = ToyEncoder("protein", 3).encode(["MKVL", "MKV"], lambda n, t: seen.append((n, t)))
    assert torch.equal(rows[0], rows[1])
    assert seen == [(2, 6)]
    assert ToyEncoder("protein", 3).encode([], quiet).shape == (0, 16)
