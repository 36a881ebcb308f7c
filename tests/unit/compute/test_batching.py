"""Batches as tables: lengths in, lists of indices out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.compute.budget import by_sequences, by_tokens, padded_length

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
        ([12, 16, 9, 16, 17], 4, 10**6, [[4, 1, 3, 0], [2]]),  # longest first, neighbours together
        ([8, 8, 8, 8, 8], 2, 10**6, [[0, 1], [2, 3], [4]]),
        ([100, 60, 59, 36, 35], 4, 10**6, [[0, 1], [2, 3], [4]]),  # none under 0.6 of the longest
        ([16, 15, 13], 4, 2 * 256, [[0, 1], [2]]),  # the area bounds a batch
        ([9, 9, 9], 4, 2 * 256, [[0, 1], [2]]),  # as it is padded
        ([64], 4, 1, [[0]]),  # but one always goes
    ],
)
def test_by_sequences(lengths, sequences, area, batches):
    assert by_sequences(lengths, sequences, step=8, area=area) == batches


def _check(lengths, batches, least, fits):
    """Check that everything is there once, in batches of like lengths that fit."""
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or fits(len(batch), longest)
        assert min(lengths[i] for i in batch) >= least * longest
    longest = [lengths[batch[0]] for batch in batches]
    assert longest == sorted(longest, reverse=True)


@given(LENGTHS, st.integers(1, 2000), st.sampled_from([10**5, 10**7]))
def test_batches_hold_everything_once_within_the_limits(lengths, most, area):
    _check(lengths, by_tokens(lengths, most), 0.8, lambda n, longest: n * longest <= most)
    _check(
        lengths,
        by_sequences(lengths, most, step=8, area=area),
        0.6,
        lambda n, longest: n <= most and n * padded_length(longest, 8) ** 2 <= area,
    )
