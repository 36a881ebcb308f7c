"""Small made-up genomes, the same in every run."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

SENSE = [
    a + b + c
    for a in "ACGT"
    for b in "ACGT"
    for c in "ACGT"
    if a + b + c not in ("TAA", "TAG", "TGA")
]


def coding(seed: int, bases: int) -> str:
    """Random codons without a stop in the first frame."""
    rng = random.Random(seed)
    return "".join(rng.choices(SENSE, k=bases // 3 + 1))[:bases]


def mutated(sequence: str, share: float, seed: int = 0) -> str:
    """``sequence`` with that share of its bases replaced by ``C``, evenly spread by chance."""
    rng = random.Random(seed)
    return "".join("C" if rng.random() < share else base for base in sequence)


def write_fasta(path: Path, records: Iterable[tuple[str, str]]) -> Path:
    """A FASTA file; compressed where the name ends in ``.gz``."""
    text = "".join(f">{header}\n{sequence}\n" for header, sequence in records).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def write_table(path: Path, rows: Iterable[Mapping[str, str]]) -> Path:
    """A table for ``train prepare``."""
    columns = ("file", "label", "group", "split", "genome", "taxon", "match")
    lines = ["\t".join(columns)]
    lines += ["\t".join(row.get(column, "") for column in columns) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


class RecordedProgress:
    """A watch that keeps what it was told."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.done: dict[str, float] = {}
        self.totals: dict[str, float] = {}

    def begin(self, title: str, total: float) -> None:
        self.steps.append(title)
        self.totals[title] = total
        self.done[title] = 0

    def advance(self, amount: float) -> None:
        self.done[self.steps[-1]] += amount
