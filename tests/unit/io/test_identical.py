"""Which sequences are the same as an earlier one."""

from __future__ import annotations

import random

import pytest

import virnucpro.stages.splitting as identical
from virnucpro.stages.splitting import digest, first_places


@pytest.mark.parametrize("at_a_time", [3, 50, 1 << 22])
@pytest.mark.parametrize("count", [0, 1, 200])
def test_each_sequence_is_led_back_to_the_first_one(
    monkeypatch: pytest.MonkeyPatch, at_a_time: int, count: int
) -> None:
    monkeypatch.setattr(identical, "SORTED_AT_A_TIME", at_a_time)
    texts = random.Random(1).choices([f"text{n}" for n in range(40)], k=count)
    digests = bytearray(b"".join(digest(text) for text in texts))
    assert first_places(digests).tolist() == [texts.index(text) for text in texts]


def test_texts_are_told_apart() -> None:
    assert digest("AC", "G") != digest("A", "CG")
    assert digest("AC", "G") == digest("AC", "G")
    assert len(digest("A")) == identical.DIGEST_BYTES
