"""Shared 31-mers, against a plain count of strings."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.training.made_genomes import coding
from virnucpro.training.data import splits
from virnucpro.training.data.splits import SCALED, K, sketch

COMPLEMENT = str.maketrans("ACGT", "TGCA")


def _plain(sequence: str) -> set[int]:
    """The sampled canonical 31-mers, one string after the other."""
    found = set()
    upper = sequence.upper()
    for start in range(len(upper) - K + 1):
        word = upper[start : start + K]
        if set(word) <= set("ACGT"):
            other = word.translate(COMPLEMENT)[::-1]
            number = min(int("".join(str("ACGT".index(b)) for b in w), 4) for w in (word, other))
            mixed = number * 0x9E3779B97F4A7C15 % 2**64
            mixed ^= mixed >> 32
            mixed = mixed * 0xD6E8FEB86659FD93 % 2**64
            mixed ^= mixed >> 29
            if mixed < 2**64 // SCALED:
                found.add(mixed)
    return found


@pytest.mark.parametrize("bases", [0, 1, 30, 31, 32, 46, 63, 3000])
def test_a_sketch_is_what_plain_counting_finds(bases):
    for seed in range(5):
        sequence = coding(seed, bases)
        assert sketch(sequence).tolist() == sorted(_plain(sequence))


def test_unknown_bases_are_in_no_word_and_case_does_not_matter():
    sequence = coding(1, 4000)
    broken = sequence[:1500] + "NRY" + sequence[1500:3000].lower() + "N" + sequence[3000:]
    assert sketch(broken).tolist() == sorted(_plain(broken))
    assert len(sketch("N" * 100)) == 0


def test_long_sequences_are_hashed_in_blocks_without_a_seam(monkeypatch):
    sequence = coding(3, 5000)
    whole = sketch(sequence)
    monkeypatch.setattr(splits, "BLOCK", 700)
    assert np.array_equal(sketch(sequence), whole)
