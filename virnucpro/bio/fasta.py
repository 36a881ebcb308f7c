"""Write and read back the FASTA files of the program itself, which need no checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path


def fasta_bytes(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Format (id or header, sequence) pairs: two lines a record, UTF-8."""
    return "".join([f">{name}\n{sequence}\n" for name, sequence in pairs]).encode()


def read_fasta(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield (id, sequence) of the records ``start`` to ``stop`` (0-based, half-open) of ``path``.

    For files that the program wrote: nothing is checked. Wrapped sequences are joined. The file is
    closed at the end, and when the iterator is dropped.

    Raises:
        OSError: the file cannot be read.
    """
    yield from islice(_records(path), start, stop)


def _records(path: Path) -> Iterator[tuple[str, str]]:
    # newline="\n" so that only a line feed ends a line: ids may hold any other character
    with path.open(encoding="utf-8", newline="\n") as file:
        name: str | None = None
        lines: list[str] = []
        for line in file:
            if line.startswith(">"):
                if name is not None:
                    yield name, "".join(lines)
                name = line[1:].rstrip("\n")
                lines = []
            else:
                lines.append(line.rstrip("\n"))
        if name is not None:
            yield name, "".join(lines)
