"""What the lite encoders count, beside counts in plain Python."""

from __future__ import annotations

import math
import random
from itertools import product

import numpy as np
import pytest

from tests.unit.encoders.small import LETTERS, sequences
from virnucpro.encoders.lite_features import (
    AMINO_ACIDS,
    NUCLEOTIDE_FEATURES,
    PROTEIN_FEATURES,
    WORD_COUNT_FEATURES,
    WordCounts,
    WordPattern,
    codons_of,
    nucleotide_features,
    protein_features,
    residues_of,
    unpacked_codes,
)

CODONS = ["".join(letters) for letters in product("ACGT", repeat=3)]
FOURS = ["".join(letters) for letters in product("ACGT", repeat=4)]
EXACT = WordPattern(" ".join(AMINO_ACIDS), "111")
SPACED = WordPattern("AST C DE FWY G H ILMV KR NQ P", "1011")
HASHED = WordPattern(" ".join(AMINO_ACIDS), "111111")


def shares(words, kinds):
    """The share of each kind among the words that are any of them."""
    known = [word for word in words if word in set(kinds)]
    return [known.count(kind) / max(len(known), 1) for kind in kinds]


def nucleotide_row(text):
    """As :func:`nucleotide_features`; a codon with an ambiguous letter has no letters at all."""
    whole = text.upper()[: len(text) // 3 * 3]
    codons = [whole[i : i + 3] for i in range(0, len(whole), 3)]
    masked = "".join(codon if codon in CODONS else "NNN" for codon in codons)
    fours = [masked[i : i + 4] for i in range(len(masked) - 3)]
    return shares(codons, CODONS) + shares(fours, FOURS) + [len(codons)]


def word_at(words, protein, start):
    """The place of a word, or None where a residue of its window is unknown."""
    window = protein[start : start + len(words.seed)]
    if any(residue not in AMINO_ACIDS for residue in window):
        return None
    groups = words.groups.split()
    place = 0
    for residue, counts in zip(window, words.seed, strict=True):
        number = next(n for n, group in enumerate(groups) if residue in group)
        place = place * len(groups) + number if counts == "1" else place
    if len(groups) ** words.seed.count("1") > 2**24:
        place = (place * 0x9E3779B97F4A7C15) % 2**64 >> 40
    return place


def word_count_row(word_count, protein):
    """As :meth:`WordCounts.features`."""
    starts = range(len(protein) - len(word_count.pattern.seed) + 1)
    found = [word_at(word_count.pattern, protein, start) for start in starts]
    codes = [None if place is None else int(word_count.codes[place]) for place in found]
    known = [code for code in codes if code is not None]
    genomes = [0.1, 1.1, 2.9, 6.1]
    evidence = [
        0.0 if code is None else math.log(genomes[code // 4] / genomes[code % 4]) for code in codes
    ]
    reach = min(16, len(evidence))
    windows = [sum(evidence[i : i + reach]) for i in range(len(evidence) - reach + 1)]
    counts = [known.count(code) for code in range(16)]
    return [
        *[count / max(len(known), 1) for count in counts],
        *[math.log1p(count) for count in counts],
        max(windows),
        min(windows),
        sum(evidence) / max(len(known), 1),
    ]


def protein_row(protein, word_counts):
    pairs = [protein[i : i + 2] for i in range(len(protein) - 1)]
    kinds = ["".join(pair) for pair in product(AMINO_ACIDS, repeat=2)]
    row = shares(protein, AMINO_ACIDS) + shares(pairs, kinds) + [len(protein)]
    return row + [
        value for word_count in word_counts for value in word_count_row(word_count, protein)
    ]


def word_count(words, seed):
    return WordCounts(words, np.random.default_rng(seed).integers(0, 16, words.places, np.uint8))


def close(found, expected):
    assert found.dtype == np.float32
    assert np.allclose(found, np.array(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bases", [3, 4, 5, 6, 7, 9, 60, 61, 500])
def test_nucleotide_features_are_plain_counts(bases):
    texts = sequences([bases] * 5, "ACGT", seed=bases) + sequences([bases] * 3, "ACGTNR", seed=1)
    texts.append("N" * bases)
    texts.append(texts[0].lower())
    found = nucleotide_features(codons_of(texts))
    assert found.shape == (len(texts), NUCLEOTIDE_FEATURES)
    close(found, [nucleotide_row(text) for text in texts])


@pytest.mark.parametrize("residues", [1, 2, 3, 4, 7, 20, 100])
def test_protein_features_are_plain_counts(residues):
    texts = sequences([residues] * 5, LETTERS, seed=residues)
    texts += sequences([residues] * 3, LETTERS + "XBZ*", seed=2)
    texts.append("X" * residues)
    word_counts = [word_count(EXACT, 1), word_count(SPACED, 2)]
    found = protein_features(residues_of(texts), word_counts)
    assert found.shape == (len(texts), PROTEIN_FEATURES + 2 * WORD_COUNT_FEATURES)
    rows = [
        protein_row(text, [c for c in word_counts if len(text) >= len(c.pattern.seed)])
        for text in texts
    ]
    rows = [row + [0.0] * (found.shape[1] - len(row)) for row in rows]  # too short for a word
    if residues == 3:  # for the first word_count only
        assert all(row[-WORD_COUNT_FEATURES:] == [0.0] * WORD_COUNT_FEATURES for row in rows)
    close(found, rows)


def test_places_of_words():
    texts = [*sequences([30] * 20, LETTERS, seed=4), "MKV" * 5 + "X" + "LAG" * 4 + "LA"]
    residues = residues_of(texts)
    for words in (EXACT, SPACED, HASHED):
        places, whole = words.index(residues)
        assert places.max() < words.places
        for row, text in enumerate(texts):
            for start in range(len(text) - len(words.seed) + 1):
                expected = word_at(words, text, start)
                assert whole[row, start] == (expected is not None)
                assert expected is None or places[row, start] == expected
    assert (EXACT.places, SPACED.places, HASHED.places) == (8000, 1000, 2**24)


@pytest.mark.parametrize(
    ("groups", "seed"),
    [
        ("A C D", "11"),
        (" ".join(AMINO_ACIDS) + " A", "11"),
        (AMINO_ACIDS, "12"),
        (AMINO_ACIDS, "00"),
    ],
)
def test_words_that_are_none(groups, seed):
    with pytest.raises(ValueError, match="make no words"):
        WordPattern(groups, seed)


@pytest.mark.parametrize("places", [1, 2, 999, 1000])
def test_a_word_count_on_disk(places):
    source = random.Random(places)
    codes = np.array([source.randrange(16) for _ in range(places)], np.uint8)
    packed = WordCounts(SPACED, codes).packed()
    assert np.array_equal(unpacked_codes(packed, places), codes)
    for cut in (len(packed) // 2, len(packed) - 1):
        with pytest.raises(ValueError, match="cut short"):
            unpacked_codes(packed[:cut], places)
    for wrong in (places + 2, max(places - 2, 0)):
        with pytest.raises(ValueError, match=f"not of {wrong} words"):
            unpacked_codes(packed, wrong)
    with pytest.raises(ValueError, match="cannot be unpacked"):
        unpacked_codes(packed[::-1], places)
