"""Write and read back the FASTA files of the program itself, which need no checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path


def fasta_bytes(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Format (id or header, sequence) pairs: two lines per record, UTF-8."""
    return "".join([f">{name}\n{sequence}\n" for name, sequence in pairs]).encode()


def read_fasta(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield (id, sequence) of the records ``start`` to ``stop`` (0-based, half-open) of ``path``.

    This is for files that the program wrote: nothing is checked. Wrapped sequences are joined. The
    file is closed at the end, and when the iterator is dropped. What cannot be read is an OSError.
    """
    left = float("inf") if stop is None else stop - start
    # newline="\n" so that only a line feed ends a line: ids may hold any other character
    with path.open(encoding="utf-8", newline="\n") as file:
        headers = (line for line in file if line.startswith(">"))
        header = next(islice(headers, start, None), "")  # what is before it is only counted
        lines: list[str] = []
        for line in file:
            if left <= 0:
                return
            if line.startswith(">"):
                yield header[1:].rstrip("\n"), "".join(lines)
                header, lines, left = line, [], left - 1
            else:
                lines.append(line.rstrip("\n"))
        if header:
            yield header[1:].rstrip("\n"), "".join(lines)


def fasta_batches(path: Path, size: int) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the ids and the sequences of ``size`` records at a time, of two lines each."""
    with path.open("rb") as file:
        while text := b"".join(islice(file, 2 * size)).decode():
            lines = text.split("\n")
            yield [header[1:] for header in lines[:-1:2]], lines[1::2]
