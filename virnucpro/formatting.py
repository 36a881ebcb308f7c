"""How sizes, durations, rates and counts are written wherever a person reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

UNKNOWN = "-"  # stands where a figure is not known


def byte_size(count: float | None) -> str:
    """Return the size of files in decimal units, as disks and downloads are measured.

    >>> byte_size(3_200_000_000), byte_size(51_000), byte_size(7), byte_size(None)
    ('3.2 GB', '51.0 kB', '7 bytes', '-')
    """
    from rich.filesize import decimal

    return UNKNOWN if count is None else decimal(int(count))


def gibibytes(count: float) -> str:
    """Return bytes of memory as a number of GiB, without the unit.

    >>> gibibytes(0.12 * 2**30), gibibytes(3.42 * 2**30), gibibytes(140.4 * 2**30)
    ('0.12', '3.4', '140')
    """
    count /= 2**30
    return f"{count:.{2 if count < 0.995 else 1 if count < 9.95 else 0}f}"


def memory_size(count: float | None) -> str:
    """Return bytes of memory in GiB.

    >>> memory_size(3.42 * 2**30), memory_size(None)
    ('3.4 GiB', '-')
    """
    return UNKNOWN if count is None else f"{gibibytes(count)} GiB"


def clock_time(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds.

    >>> clock_time(3723), clock_time(123)
    ('1:02:03', '2:03')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def rough_duration(seconds: float) -> str:
    """Return an estimated duration in its natural unit.

    >>> rough_duration(89), rough_duration(600), rough_duration(5400)
    ('89 s', '10 min', '1.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def seconds_text(seconds: float | None, digits: int = 1) -> str:
    """Return a measured duration in seconds.

    >>> seconds_text(1234.567), seconds_text(0.123, 2), seconds_text(None)
    ('1,234.6 s', '0.12 s', '-')
    """
    return UNKNOWN if seconds is None else f"{seconds:,.{digits}f} s"


def short_number(number: float) -> str:
    """Return a number in at most five characters, with three digits or more.

    >>> short_number(7), short_number(1692), short_number(61234), short_number(489300)
    ('7', '1,692', '61.2k', '489k')
    >>> short_number(1234567)
    '1.23M'
    """
    if number < 9_999.5:
        return f"{number:,.0f}"
    for unit in ("k", "M", "G"):
        number /= 1000
        if number < 999.5:
            digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
            return f"{number:.{digits}f}{unit}"
    return f"{number:.0f}G"


def rate_text(amount: float | None, unit: str = "") -> str:
    """Return an amount per second; ``unit`` is what is counted, for example ``tok``.

    >>> rate_text(1692), rate_text(489_300, "tok"), rate_text(None, "tok")
    ('1,692/s', '489k tok/s', '- tok/s')
    """
    number = UNKNOWN if amount is None else short_number(amount)
    return f"{number} {unit}/s" if unit else f"{number}/s"


def percent(share: float | None, digits: int = 0) -> str:
    """Return a share, 0 to 1, in percent.

    >>> percent(0.123), percent(0.123, 1), percent(None)
    ('12 %', '12.3 %', '-')
    """
    return UNKNOWN if share is None else f"{100 * share:.{digits}f} %"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun; ``plural`` is ``noun`` with an s unless it is given.

    >>> counted(1, "task"), counted(2000, "task"), counted(0, "category", "categories")
    ('1 task', '2,000 tasks', '0 categories')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def is_or_are(count: int) -> str:
    """Return the verb of a sentence about ``count`` things.

    >>> is_or_are(1), is_or_are(0)
    ('is', 'are')
    """
    return "is" if count == 1 else "are"


def printable(text: str) -> str:
    """Return ``text`` with whatever could move the cursor of a terminal written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line per row, with the cells of each column below each other.

    >>> list(aligned([("a", "b"), ("long", "c")]))
    ['a     b', 'long  c']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
