"""The examples in the docstrings of ``formatting``, which are its table of cases."""

from __future__ import annotations

import doctest

import pytest

from virnucpro import formatting
from virnucpro.formatting import printable


def test_examples() -> None:
    failed, tried = doctest.testmod(formatting)
    assert failed == 0
    assert tried > 10


@pytest.mark.parametrize(
    ("text", "written"),
    [("plain é", "plain é"), ("a\tb\nc", "a\tb\nc"), ("\x1b[2J\r", "\\x1b[2J\\x0d")],
)
def test_no_character_moves_the_cursor(text: str, written: str) -> None:
    assert printable(text) == written
