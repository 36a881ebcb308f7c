"""Which frames are taken."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from virnucpro.training.data.prepare import balanced, random_numbers


def test_numbers_are_the_same_on_every_machine_and_with_every_numpy():
    """The raw output of PCG-64 is fixed."""
    assert np.argsort(random_numbers(8, 0, 1)).tolist() == [7, 4, 5, 1, 6, 2, 0, 3]


def frames_of(*groups):
    """Frames of groups: part, chunk length, whether they are viruses, and their number."""
    names = ("part", "length", "virus", "number")
    rows = [(*row, group) for group, row in enumerate(groups) for _ in range(row[-1])]
    return pd.DataFrame(rows, columns=[*names, "group"])


def taken(frames, seed=7):
    return frames[balanced(frames, seed)].groupby("group").size().to_dict()


def test_either_label_gives_as_many_for_each_part_and_length():
    frames = frames_of(
        ("train", 300, True, 50),
        ("train", 300, False, 1000),
        ("train", 150, True, 30),
        ("train", 150, False, 10),
        ("validation", 300, True, 5),  # nothing to balance with
        ("test", 300, True, 9),
        ("test", 300, False, 20),
    )
    assert taken(frames) == {0: 50, 1: 50, 2: 10, 3: 10, 4: 5, 5: 9, 6: 20}
    assert (
        balanced(frames, 7).tolist() == balanced(frames, 7).tolist() != balanced(frames, 8).tolist()
    )


def test_groups_give_by_the_square_root_of_their_size():
    groups = [("train", 300, False, size) for size in (5, 1000, 100_000)]
    found = taken(frames_of(("train", 300, True, 1110), *groups))
    assert found[1] == pytest.approx(5, abs=2)
    assert found[3] / found[2] == pytest.approx(10, rel=0.25)
    assert sum(found[n] for n in (1, 2, 3)) == 1110
