"""The chunk rule, against the list of shifts that the original builds."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.io.frames import chunk_id, chunk_spans, record_of


def original(length: int, chunk_length: int) -> list[tuple[int, int]]:
    count = ceil(length / chunk_length)
    spare = count * chunk_length - length
    low = floor(spare / count)
    longer = spare - low * (count - 1)
    shifts = [low + 1] * longer + [low] * (count - 1 - longer) + [0]
    spans, start = [], 0
    for k in range(count):
        spans.append((start, min(start + chunk_length, length)))
        start += chunk_length - shifts[k]
    return spans


@given(st.integers(1, 5000), st.integers(1, 600))
def test_same_as_the_original(length, chunk_length):
    assert chunk_spans(0, chunk_length) == []
    spans = chunk_spans(length, chunk_length)
    assert spans == original(length, chunk_length)
    assert spans[0][0] == 0
    assert spans[-1][1] == length
    for one, other in pairwise(spans):
        assert one[0] < other[0] <= one[1] <= other[1]  # no base is left out


@pytest.mark.parametrize("record_id", ["a", "a_chunk_1", "a_chunk_1F1", "_chunk_", "é|x", "3"])
def test_19_ids_can_be_taken_apart(record_id):
    assert record_of(chunk_id(record_id, 12)) == (record_id, 12)


@pytest.mark.parametrize("name", ["a", "a_chunk_", "a_chunk_x", "a_chunk_1F1", "a_chunk_²"])
def test_not_a_chunk_id(name):
    with pytest.raises(ValueError, match="not the id of a chunk"):
        record_of(name)
