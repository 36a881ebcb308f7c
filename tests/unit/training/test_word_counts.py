"""Counting words for the censuses, beside counting them in plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.training.lite_sets import PAIRS, SMALL, SPACED, frame_set, frames
from virnucpro.encoders.lite_features import AMINO_ACIDS, residues_of
from virnucpro.io.frames import GENETIC_CODE
from virnucpro.training.lite.frames import FOLDS
from virnucpro.training.lite.word_counts import count_words

VIRUS = [number % 3 == 0 for number in range(40)]
# Genomes 0 to 29 are alone; 30 to 39 are relatives of the first ten.
CLUSTERS = np.array([*range(30), *range(10)], np.int32)


@pytest.fixture(scope="module")
def sets():
    """Frames of 40 genomes, cut at two lengths; those of the shorter are not of the longer."""
    texts = {length: [frames(length + n, 2, length) for n in range(40)] for length in (90, 60)}
    return [frame_set(texts[length], VIRUS, length) for length in (90, 60)], texts


def level(genomes):
    return 0 if genomes < 1 else 1 if genomes < 2 else 2 if genomes < 4 else 3


def naive(pattern, texts, without):
    """The code of every place, without the clusters of fold ``without``."""
    holders = [[set() for _ in range(pattern.places)] for _ in (False, True)]
    groups = pattern.groups.split()
    for own in texts.values():
        for genome, several in enumerate(own):
            cluster = int(CLUSTERS[genome])
            if cluster % FOLDS == without:
                continue
            for text in several:
                protein = "".join(GENETIC_CODE[text[i : i + 3]] for i in range(0, len(text), 3))
                for start in range(len(protein) - len(pattern.seed) + 1):
                    place = 0
                    for offset, counts in enumerate(pattern.seed):
                        residue = protein[start + offset]
                        number = next(n for n, group in enumerate(groups) if residue in group)
                        place = place * len(groups) + number if counts == "1" else place
                    holders[VIRUS[genome]][place].add(cluster)
    others, virus = holders
    return [4 * level(len(v)) + level(len(o)) for o, v in zip(others, virus, strict=True)]


@pytest.mark.parametrize("pattern", SMALL, ids=["pairs", "spaced"])
def test_clusters_are_counted_in_and_out_of_folds(sets, pattern):
    made, texts = sets
    counted = count_words(pattern, made, CLUSTERS)
    assert counted.codes.shape == (FOLDS + 1, pattern.places)
    assert counted.codes[FOLDS].tolist() == naive(pattern, texts, None)
    for fold in range(FOLDS):
        assert counted.codes[fold].tolist() == naive(pattern, texts, fold), fold
    assert len(set(counted.codes[FOLDS].tolist())) > 6
    assert np.array_equal(counted.of_all_genomes.codes, counted.codes[FOLDS])


def test_a_frame_never_meets_its_own_relatives(sets):
    """What only one cluster has is unknown to every frame of it, and known to all others."""
    made, _ = sets
    rare = "WWWW"
    texts = [
        [*frames(n, 1, 60), "TGG" * 4 + "GCT" * 16] if n in (3, 33) else frames(n, 1, 60)
        for n in range(40)
    ]
    made = [frame_set(texts, VIRUS, 60)]
    counted = count_words(PAIRS, made, CLUSTERS)
    residues = residues_of([rare] * 3)
    clusters = np.array([CLUSTERS[3], CLUSTERS[33], CLUSTERS[4]], np.int32)
    codes, whole = counted.look_up(residues, clusters)
    assert whole.all()
    code = 21 * AMINO_ACIDS.index("W")
    assert counted.of_all_genomes.codes[code] == codes[2, 0] > 0
    assert np.array_equal(codes[0], codes[1])
    alone = count_words(PAIRS, [frame_set([[t] for t in texts[4]], [VIRUS[4]], 60)], CLUSTERS[4:5])
    assert alone.codes[CLUSTERS[4] % FOLDS].tolist() == [0] * PAIRS.places


def test_strains_are_one_witness():
    """Ten strains of one cluster count once; three clusters count as three."""
    strain = frames(1, 1, 60)
    sets = [frame_set([strain] * 10, [True] * 10, 60)]
    one = count_words(SPACED, sets, np.zeros(10, np.int32)).of_all_genomes.codes
    assert set(one.tolist()) == {0, 4}
    three = count_words(SPACED, sets, np.arange(10, dtype=np.int32) % 3).of_all_genomes.codes
    assert set(three.tolist()) == {0, 8}
    ten = count_words(SPACED, sets, np.arange(10, dtype=np.int32)).of_all_genomes.codes
    assert set(ten.tolist()) == {0, 12}


def test_more_genomes_than_fit_into_a_byte():
    strain = frames(1, 1, 60)
    sets = [frame_set([strain] * 700, [False] * 700, 60)]
    numbers = np.arange(700, dtype=np.int32)
    for clusters, without_first in ((numbers, {0, 3}), (numbers * FOLDS, {0})):
        codes = count_words(PAIRS, sets, clusters).codes
        assert set(codes[FOLDS].tolist()) == set(codes[1].tolist()) == {0, 3}
        assert set(codes[0].tolist()) == without_first
