"""Batches as tables: lengths in, lists of indices out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.compute.budget import bucket_of, by_buckets, by_tokens

LENGTHS = st.lists(st.integers(1, 300), max_size=80)


@pytest.mark.parametrize(
    ("lengths", "budget", "batches"),
    [
        ([], 10, []),
        ([5], 10, [[0]]),
        ([50], 10, [[0]]),  # longer than the budget: alone
        ([5, 5, 5], 10, [[0], [1, 2]]),
        ([5] * 7, 15, [[0, 1], [2, 3], [4, 5, 6]]),  # of like size, not 3, 3 and 1
        ([5, 5, 5], 15, [[0, 1, 2]]),
        ([3, 9, 3, 9], 18, [[1, 3], [0, 2]]),  # longest first, equal lengths together
        ([10, 9, 8, 7], 40, [[0, 1, 2], [3]]),  # strays: at most a fifth of a row is padding
        ([10, 9, 8, 8], 20, [[0], [1], [2, 3]]),  # one of two is half a batch
        ([10, 9, 9, 9], 30, [[0], [1, 2, 3]]),
        ([10, 4], 40, [[0], [1]]),  # too unlike
    ],
)
def test_by_tokens(lengths, budget, batches):
    assert by_tokens(lengths, budget) == batches


@pytest.mark.parametrize(
    ("lengths", "sequences", "area", "batches"),
    [
        ([], 4, 10**6, []),
        ([3, 8, 9, 16, 17], 4, 10**6, [[4], [3, 2], [1, 0]]),
        ([8, 8, 8, 8, 8], 2, 10**6, [[0, 1], [2, 3], [4]]),
        ([16, 16, 16], 4, 2 * 256, [[0, 1], [2]]),  # the area bounds a batch
        ([64], 4, 1, [[0]]),  # but one always goes
    ],
)
def test_by_buckets(lengths, sequences, area, batches):
    assert by_buckets(lengths, sequences, step=8, area=area) == batches


@given(LENGTHS, st.integers(1, 2000))
def test_token_batches_hold_everything_once_within_the_budget(lengths, budget):
    batches = by_tokens(lengths, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or len(batch) * longest <= budget
        assert min(lengths[i] for i in batch) >= 0.8 * longest
    longest = [lengths[batch[0]] for batch in batches]
    assert longest == sorted(longest, reverse=True)


@given(LENGTHS, st.integers(1, 40))
def test_bucket_batches_hold_everything_once(lengths, sequences):
    batches = by_buckets(lengths, sequences, step=8, area=10**5)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= sequences
        assert len({bucket_of(lengths[i], 8) for i in batch}) == 1
