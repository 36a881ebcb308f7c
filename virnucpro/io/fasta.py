"""Write and read back the FASTA files of the program itself, which need no checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path


def fasta_bytes(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Format (id or header, sequence) pairs: two lines per record, UTF-8."""
    return "".join([f">{name}\n{sequence}\n" for name, sequence in pairs]).encode()


def read_fasta(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield (id, sequence) of the records ``start`` to ``stop`` (0-based, half-open) of ``path``.

    This is for files that the program wrote: nothing is checked. Wrapped sequences are joined. The
    file is closed at the end, and when the iterator is dropped.

    Raises:
        OSError: the file cannot be read.
    """
    name, lines, number = "", [""], -1
    # newline="\n" so that only a line feed ends a line: ids may hold any other character
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            if line.startswith(">"):
                if number >= start:
                    yield name, "".join(lines)
                number += 1
                if number == stop:
                    return
                name, lines = line[1:].rstrip("\n"), []
            elif number >= start:
                lines.append(line.rstrip("\n"))
        if number >= start:
            yield name, "".join(lines)
