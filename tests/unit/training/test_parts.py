"""Which frames are taken."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.training.data.parts import balanced, quotas, shuffled


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=20), st.data())
def test_quotas_add_up_and_no_group_gives_more_than_it_has(sizes, data):
    target = data.draw(st.integers(0, sum(sizes)))
    taken = quotas(sizes, target)
    assert sum(taken) == target
    assert all(0 <= own <= size for own, size in zip(taken, sizes, strict=True))
    # A larger group never gives less.
    ordered = [own for _, own in sorted(zip(sizes, taken, strict=True))]
    assert all(a <= b + 1 for a, b in itertools.pairwise(ordered))


def test_quotas_follow_the_square_root():
    assert quotas([100, 10_000, 90_000], 4100) == [100, 1000, 3000]
    assert quotas([4, 10_000, 40_000], 304) == [2, 101, 201]
    assert quotas([4, 10_000, 40_000], 30_004) == [4, 10_000, 20_000]
    assert quotas([5, 7], 100) == [5, 7]


def test_an_order_depends_on_all_seeds_and_on_nothing_else():
    first = shuffled(1000, 1, 2)
    assert sorted(first.tolist()) == list(range(1000))
    assert np.array_equal(first, shuffled(1000, 1, 2))
    assert not np.array_equal(first, shuffled(1000, 1, 3))
    # The same on every machine and with every NumPy: the raw output of PCG-64 is fixed.
    assert shuffled(8, 0, 1).tolist() == [7, 4, 5, 1, 6, 2, 0, 3]


def test_both_classes_get_as_many():
    virus = np.array([True] * 50 + [False] * 1000)
    groups = np.array([0] * 50 + [1] * 100 + [2] * 900, np.int32)
    taken = balanced(virus, groups, 7)
    assert taken[virus].all()
    assert taken[~virus].sum() == 50
    assert (taken & (groups == 1)).sum() == 13  # 50 in the ratio 10 : 30, rounded
    assert np.array_equal(taken, balanced(virus, groups, 7))
    assert not np.array_equal(taken, balanced(virus, groups, 8))


def test_the_viruses_are_thinned_where_they_are_more():
    virus = np.array([True] * 30 + [False] * 10)
    taken = balanced(virus, np.zeros(40, np.int32), 0)
    assert (taken[virus].sum(), taken[~virus].sum()) == (10, 10)
