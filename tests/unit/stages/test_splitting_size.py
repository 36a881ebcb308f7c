"""How many frames go into a split file."""

from __future__ import annotations

import pytest

from virnucpro.stages.splitting import MOST_FILES, frames_per_file


@pytest.mark.parametrize(
    ("frames", "proteins", "most", "size"),
    [
        (0, True, None, 500),
        (1000, True, None, 500),
        (320_001, True, None, 501),
        (1_000_000, True, None, 1563),
        (9_000_000, True, None, 2000),
        (10**8, True, None, 10_000),
        (1000, False, None, 2500),
        (10**8, False, None, 10_000),
        (10**8, True, 25, 25),
        (1000, True, 10_000, 500),
    ],
)
def test_the_size_follows_from_the_number_of_frames(
    frames: int, proteins: bool, most: int | None, size: int
) -> None:
    assert frames_per_file(frames, proteins=proteins, most=most) == size
    assert most or -(-frames // size) <= MOST_FILES
