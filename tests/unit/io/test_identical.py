"""Which sequences are the same as an earlier one."""

from __future__ import annotations

import random
from hashlib import blake2b

import pytest

import virnucpro.stages.splitting as identical
from virnucpro.stages.splitting import DIGEST_BYTES, first_places


@pytest.mark.parametrize("at_a_time", [3, 50, 1 << 22])
@pytest.mark.parametrize("count", [0, 1, 200])
def test_each_sequence_is_led_back_to_the_first_one(
    monkeypatch: pytest.MonkeyPatch, at_a_time: int, count: int
) -> None:
    monkeypatch.setattr(identical, "SORTED_AT_A_TIME", at_a_time)
    texts = random.Random(1).choices([f"text{n}" for n in range(40)], k=count)
    digests = bytearray()
    for text in texts:
        digests += blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()
    assert first_places(digests).tolist() == [texts.index(text) for text in texts]
