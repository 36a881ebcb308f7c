"""Small made-up genomes, the same in every run."""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Iterable, Mapping
from pathlib import Path

from virnucpro.events import Event, StepAdvanced, StepStarted
from virnucpro.training.data.dataset import Dataset

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


# Genomes with each oddity that ``train prepare`` looks for, and rows of a table for them.
FILES = {
    "phages.fa.gz": [
        (f"P{n}_frag{k} phage", coding(10 * n + k, 1700)) for n in range(12) for k in (1, 2)
    ],
    "held.fa": [("H1 held-out virus", coding(901, 2600)), ("H2 held-out virus", coding(902, 2600))],
    "bacteria.fa": [
        *((f"B{n} Bacterium", coding(500 + n, 9000)) for n in range(14)),
        ("B98 Bacterium with a virus in it", coding(901, 2600) + coding(600, 2000)),
        ("plasmid Bacterium", coding(601, 3000)),
        ("short", "AC"),
    ],
    "more.fa": [
        ("B1 of another file", coding(700, 3000)),
        ("N many N", "N" * 400 + coding(701, 600)),
    ],
}
ROWS = [
    {"file": "phages.fa.gz", "label": "virus", "group": "phages", "genome": r"^(\w+)_frag"},
    {"file": "held.fa", "label": "1", "group": "held", "split": "test"},
    {"file": "bacteria.fa", "label": "others", "group": "bacteria", "match": "Bacterium|short"},
    {"file": "more.fa", "label": "0", "group": "more", "split": "test=0.5", "match": "another"},
    {"file": "more.fa", "label": "0", "group": "many N", "split": "train", "match": "N$"},
]


def genome_rows(dataset: Dataset) -> list[dict[str, str]]:
    """The rows of ``genomes.tsv``."""
    with dataset.genomes_table.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


class RecordedProgress:
    """Keeps what it was shown of steps."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.done: dict[str, int] = {}
        self.totals: dict[str, int] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepStarted):
            self.steps.append(event.title)
            self.totals[event.title] = event.total
            self.done[event.title] = 0
        elif isinstance(event, StepAdvanced):
            self.done[self.steps[-1]] += event.amount
