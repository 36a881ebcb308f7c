"""Whether earlier work is the same work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from virnucpro.errors import ResumeRefusedError
from virnucpro.store.work import WorkIdentity, check_same

EARLIER = WorkIdentity("the run of s.fa", {"input": "a" * 64, "chunk length": 500, "lengths": [1]})


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ({"chunk length": 300}, "chunk length: was 500, is 300"),
        ({"input": "b" * 64}, "input: was sha256 aaaaaaaaaaaa..., is sha256 bbbbbbbbbbbb..."),
        ({"precision": "fp32"}, "precision: was not set, is fp32"),
        ({"lengths": ["x" * 300]}, f'lengths: was [1], is ["{"x" * 198}...'),
        ({"lengths": ...}, "lengths: was [1], is not set"),
        ({"lengths": (1,)}, None),  # a tuple is the list that JSON makes of it
    ],
)
def test_another_identity_is_refused_and_the_change_is_named(
    change: dict[str, object], row: str | None
) -> None:
    settings = {n: v for n, v in {**EARLIER.settings, **change}.items() if v is not ...}
    wanted = replace(EARLIER, label="the run of moved/s.fa", settings=settings)
    if row is None:
        check_same(wanted, EARLIER, Path("out"))
        return
    with pytest.raises(ResumeRefusedError) as caught:
        check_same(wanted, EARLIER, Path("out"))
    assert f"\n  {row}\n" in str(caught.value)
