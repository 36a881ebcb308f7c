"""The windows that a lite encoder is trained on: which ones, how often, and what is done to them."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from windows import (
    MOST_WEIGHT,
    WindowSampler,
    even_gc_shares,
    gc_weights,
    genome_set,
    measured_windows,
    mutated,
    note_losses,
)

from virnucpro.encoders.lite import UNKNOWN
from virnucpro.errors import InputError
from virnucpro.training.data.dataset import LabelledRecord

LETTERS = "ACGTN"


def record(name, label, length, group="g", taxon=None, letters="ACGT"):
    sequence = "".join(random.Random(name).choices(letters, k=length))
    return LabelledRecord(name, name, taxon or name, group, label, sequence)


def text(window):
    return "".join(LETTERS[number] for number in window)


def test_windows_are_pieces_of_their_records():
    records = [record("v", "virus", 700), record("o", "others", 900), record("tiny", "virus", 99)]
    genomes = genome_set(records)
    assert genomes.lengths.tolist() == [700, 900]  # no window fits into the last one
    numbers, offsets = WindowSampler(genomes, 300).draw(200, 300, np.random.default_rng(1))
    windows = genomes.windows(numbers, offsets, 300)
    assert windows.shape == (200, 300)
    for number, offset, window in zip(numbers, offsets, windows, strict=True):
        assert text(window) == records[number].sequence[offset : offset + 300]
    assert genomes.virus[numbers].tolist() == [False] * 100 + [True] * 100
    places = offsets[numbers == 1]
    assert places.min() < 60
    assert places.max() > 540
    assert places.max() <= 600
    tight = genome_set([record("v", "virus", 301), record("o", "others", 300)])
    _, offsets = WindowSampler(tight, 300).draw(40, 300, np.random.default_rng(1))
    assert [set(offsets[:20]), set(offsets[20:])] == [{0}, {0, 1}]


def test_masked_parts_are_left_out_or_a_group():
    rows = [record("v", "virus", 400), record("o", "others", 1000)]
    genomes = genome_set(rows, {"o": [(700, 800, "", False), (150, 400, "rRNA", False)]})
    assert genomes.lengths.tolist() == [400, 150, 300, 200, 250]
    assert genomes.virus.tolist() == [True, False, False, False, False]
    assert [genomes.group_names[n] for n in genomes.groups[1:]] == ["g", "g", "g", "rRNA"]
    sequence = rows[1].sequence
    for number, part in enumerate(
        (sequence[:150], sequence[400:700], sequence[800:], sequence[150:400]), 1
    ):
        windows = genomes.windows(np.array([number]), np.array([0]), len(part))
        assert text(windows[0]) == part
    proviruses = genome_set(rows, {"o": [(700, 900, "proviruses", True)]})
    assert proviruses.virus.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("masked", "lengths"),
    [
        ([(0, 10), (159, 990)], []),  # what is left is too short for a window
        ([(300, 700), (400, 500), (600, 800)], [300, 200]),  # they overlap
        ([(0, 500), (500, 600)], [400]),
    ],
)
def test_what_is_left_of_a_record(masked, lengths):
    rows = [record("v", "virus", 400), record("o", "others", 1000)]
    masked = [(start, end, "", False) for start, end in masked]
    assert genome_set(rows, {"o": masked}).lengths.tolist() == [400, *lengths]


def test_groups_and_taxa_count_by_the_square_root_of_their_bases():
    records = [
        record("v", "virus", 1000),
        *(record(f"a{n}", "others", 10_000, "large", f"taxon {n % 2}") for n in range(8)),
        record("b", "others", 10_000, "large", "taxon 3"),
        record("c", "others", 10_000, "small", "taxon 4"),
    ]
    genomes = genome_set(records)
    numbers, _ = WindowSampler(genomes, 150).draw(40_000, 150, np.random.default_rng(1))
    others = numbers[~genomes.virus[numbers]]
    groups = Counter(genomes.groups[others].tolist())
    large, small = groups.most_common()
    assert large[1] / small[1] == pytest.approx(3, rel=0.05)  # 90,000 and 10,000 bases
    drawn = Counter(others.tolist())
    # Two taxa of 40,000 bases, one of 10,000: 2 to 2 to 1.
    assert drawn[9] / large[1] == pytest.approx(1 / 5, rel=0.1)
    assert drawn[1] / large[1] == pytest.approx(2 / 5 / 4, rel=0.15)


def test_a_label_without_a_record_that_is_long_enough():
    genomes = genome_set([record("v", "virus", 400), record("o", "others", 300)])
    WindowSampler(genomes, 300)
    with pytest.raises(InputError, match="no others records of 400 bases"):
        WindowSampler(genomes, 400)
    assert len(measured_windows(genomes, 400, 10, 0)[0]) == 0


def test_unknown_bases_are_not_measured():
    records = [
        record("v", "virus", 500, letters="ACGTNN"),
        record("w", "virus", 500),
        record("o", "others", 500),
    ]
    genomes = genome_set(records)
    numbers, _ = measured_windows(genomes, 200, 100, 0)
    assert set(numbers.tolist()) == {1, 2}


def test_mutations():
    windows = np.random.default_rng(1).integers(0, 5, (2000, 200)).astype(np.uint8)
    changed = mutated(windows.copy(), 0.1, np.random.default_rng(2))
    assert (changed[windows == UNKNOWN] == UNKNOWN).all()
    assert changed.max() == UNKNOWN
    rates = (changed != windows).mean(axis=1)
    assert 0.4 < (rates == 0).mean() < 0.6
    # 10 % are drawn on average in half of the windows; a quarter of these stay as they are, and a
    # fifth of the letters is unknown.
    assert rates.mean() == pytest.approx(0.1 / 2 * 0.75 * 0.8, rel=0.1)


def windows_of(gc, count):
    """Windows of 100 bases with that many G and C."""
    window = np.array([1, 2] * (gc // 2) + [0] * (100 - gc), np.uint8)
    return np.tile(window, (count, 1))


def test_the_running_mean_of_the_loss_of_each_group():
    means, groups = np.ones(3), np.repeat(np.array([0, 1], np.int32), 5000)
    for _ in range(5):
        note_losses(means, groups, np.repeat(np.array([0.2, 0.4], np.float32), 5000))
    assert means == pytest.approx([0.2, 0.4, 1], rel=1e-3)  # of the last one nothing is known


def test_a_window_counts_by_how_rare_its_label_is_at_its_gc():
    """Nine of ten viruses have 32 % GC, nine of ten others 62 %."""
    shares = even_gc_shares()
    windows = np.concatenate([windows_of(gc, n) for gc, n in ((32, 900), (62, 1000), (32, 100))])
    labels = np.repeat([1, 0], 1000).astype(np.int64)
    windows[900:1000] = windows_of(62, 100)
    windows[1000:1900] = windows_of(62, 900)
    for _ in range(200):
        weights = gc_weights(shares, windows, labels)
    usual_virus, rare_virus = weights[0], weights[950]
    usual_other, rare_other = weights[1000], weights[1950]
    assert np.isclose(usual_virus, 0.5 / 0.9, rtol=1e-3)
    assert np.isclose(usual_other, 0.5 / 0.9, rtol=1e-3)
    assert rare_virus == rare_other == MOST_WEIGHT
