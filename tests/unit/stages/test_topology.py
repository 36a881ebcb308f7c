import random

import pytest

from virnucpro.stages.topology import topology

BASES = "".join(random.Random(1).choices("ACGT", k=600))
INVERTED = BASES[:30].translate(str.maketrans("ACGT", "TGCA"))[::-1]


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        (BASES, "linear"),
        (BASES + BASES[:21], "DTR"),
        (BASES + BASES[:20], "linear"),
        (BASES + BASES[:300], "DTR"),
        (BASES + BASES[:100].lower(), "DTR"),
        (BASES + BASES[:40] + "A", "linear"),  # the repeat does not reach the end
        (BASES + BASES[:50] + BASES[21:50], "linear"),
        (BASES + INVERTED, "ITR"),
        (BASES + INVERTED[:-1] + "N", "linear"),
        ("AC" * 300, "linear"),
        ("ACG" * 200, "linear"),
        ("A" * 500, "linear"),
        ("N" * 500, "linear"),
        (f"N{BASES}N{BASES[:20]}", "linear"),
        (BASES[:41], "linear"),
        ("", "linear"),
    ],
)
def test_terminal_repeats(sequence, expected):
    assert topology(sequence) == expected
