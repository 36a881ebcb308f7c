"""How figures are written, as tables of cases."""

import pytest

from virnucpro import formatting
from virnucpro.formatting import printable


@pytest.mark.parametrize(
    ("function", "cases"),
    [
        ("byte_size", {3_200_000_000: "3.2 GB", 51_000: "51.0 kB", 7: "7 bytes", None: "-"}),
        ("gibibytes", {0.12 * 2**30: "0.12", 3.42 * 2**30: "3.4", 140.4 * 2**30: "140"}),
        ("memory_size", {3.42 * 2**30: "3.4 GiB", None: "-"}),
        ("clock_time", {3723: "1:02:03", 123: "2:03", 59.6: "1:00"}),
        ("seconds_text", {1234.567: "1,234.6 s", (0.123, 2): "0.12 s", None: "-"}),
        ("short_number", {7: "7", 1692: "1,692", 61234: "61.2k", 489300: "489k", 1234567: "1.23M"}),
        ("percent", {0.123: "12 %", (0.123, 1): "12.3 %", None: "-"}),
        ("counted", {(1, "task"): "1 task", (2000, "a"): "2,000 as"}),
        (
            "part_of",
            {(0, 1, "a"): "0 of 1 a is", (1, 2, "a"): "1 of 2 as is", (0, 2, "a"): "0 of 2 as are"},
        ),
    ],
)
def test_figures(function, cases):
    write = getattr(formatting, function)
    for given, text in cases.items():
        assert write(*(given if isinstance(given, tuple) else (given,))) == text


@pytest.mark.parametrize(
    ("text", "written"),
    [("plain é", "plain é"), ("a\tb\nc", "a\tb\nc"), ("\x1b[2J\r", "\\x1b[2J\\x0d")],
)
def test_no_character_moves_the_cursor(text, written):
    assert printable(text) == written
