"""How sizes, durations, rates and counts are written wherever a person reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

UNKNOWN = "-"  # stands where a figure is not known


def byte_size(count: float | None) -> str:
    """Return the size of files in decimal units, as disks and downloads are measured."""
    from rich.filesize import decimal

    return UNKNOWN if count is None else decimal(int(count))


def gibibytes(count: float) -> str:
    """Return bytes of memory as a number of GiB, without the unit."""
    count /= 2**30
    return f"{count:.{2 if count < 0.995 else 1 if count < 9.95 else 0}f}"


def memory_size(count: float | None) -> str:
    """Return bytes of memory in GiB."""
    return UNKNOWN if count is None else f"{gibibytes(count)} GiB"


def clock_time(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def seconds_text(seconds: float | None, digits: int = 1) -> str:
    """Return a measured duration in seconds."""
    return UNKNOWN if seconds is None else f"{seconds:,.{digits}f} s"


def short_number(number: float) -> str:
    """Return a number in at most five characters, with three digits or more."""
    if number < 9_999.5:
        return f"{number:,.0f}"
    for unit in ("k", "M", "G"):
        number /= 1000
        if number < 999.5:
            digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
            return f"{number:.{digits}f}{unit}"
    return f"{number:.0f}G"


def percent(share: float | None, digits: int = 0) -> str:
    """Return a share, 0 to 1, in percent."""
    return UNKNOWN if share is None else f"{100 * share:.{digits}f} %"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, whose plural ends with an s."""
    return f"{count:,} {noun if count == 1 else f'{noun}s'}"


def part_of(count: int, total: int, noun: str) -> str:
    """Return a part of a count with its noun and the verb: ``1 of 3 records is``."""
    return f"{count:,} of {counted(total, noun)} {'is' if 1 in (count, total) else 'are'}"


def calls_text(
    virus: int, records: int, noun: str, tiers: Mapping[str, int], hallmarked: int
) -> str:
    """Tell how many records are classified as viral, of which tiers, and with hallmark genes."""
    text = f"{part_of(virus, records, noun)} classified as viral"
    named = [f"{tier}: {tiers[tier]:,}" for tier in ("high", "medium", "low") if tier in tiers]
    text += f" (tier {', '.join(named)})" if named else ""
    return f"{text}, {hallmarked:,} of them with hallmark genes" if hallmarked else text


def regions_text(regions: int, bases: int, hosts: int) -> str:
    """Tell of viral regions; ``hosts`` are the records not classified as viral that hold some."""
    text = f"{counted(regions, 'viral region')} with {counted(bases, 'base')}"
    verb = "holds" if hosts == 1 else "hold"
    return f"{text}; {counted(hosts, 'record')} not classified as viral {verb} regions"


def shortened_ids(ids: Iterable[str], most: int) -> dict[str, str]:
    """Return ids by themselves in ``most`` letters, without their middles where they are longer.

    Ids that would become the same stay whole.

    >>> shortened_ids(["contig_1_flag_a", "contig_2"], 9)
    {'contig_1_flag_a': 'cont…ag_a', 'contig_2': 'contig_2'}
    """
    end = most // 2
    short = {id: f"{id[:end]}…{id[-end:]}" if len(id) > most else id for id in ids}
    counts = Counter(short.values())
    return {id: text if counts[text] == 1 else id for id, text in short.items()}


def printable(text: str) -> str:
    """Return ``text`` with whatever could move the cursor of a terminal written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line per row, with the cells of each column below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def markdown_text(text: object) -> str:
    """Return text, such as a name that a user gave, without any meaning in Markdown or HTML."""
    words = " ".join(str(text).split())
    return "".join(f"\\{sign}" if sign in "\\`*_[]#|<>&~" else sign for sign in words)


def markdown_table(headings: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Return a table in Markdown."""
    header = list(headings)
    lines: list[Iterable[object]] = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(markdown_text, line))} |" for line in lines)
