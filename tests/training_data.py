"""Small labelled data sets, made by ``train prepare`` itself."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.stages import splitting
from virnucpro.training.data.dataset import PARTS, Dataset
from virnucpro.training.data.prepare import prepare_dataset
from virnucpro.training.embed import embed

STOPS = ("TAA", "TAG", "TGA")
LENGTH = 300
LETTERS = {"virus": "AAAATTTTCG", "others": "AATTCCCCGGGG"}


def genome(label: str, codons: int, seed: int) -> str:
    """Random codons without a stop: rich in A and T for a virus, in C and G for the others."""
    source = random.Random(f"{label} {seed}")
    made: list[str] = []
    while len(made) < codons:
        codon = "".join(source.choices(LETTERS[label], k=3))
        if codon not in STOPS:
            made.append(codon)
    return "".join(made)


def make_records(
    root: Path, genomes: tuple[int, int, int] = (4, 2, 2), codons: int = 1000, **options: str
) -> Dataset:
    """A data set with so many genomes of each label in train, validation and test."""
    root.mkdir(parents=True, exist_ok=True)
    rows = ["file\tlabel\tgroup\tsplit\tmatch"]
    source = root.parent / f"{root.name}.fa"
    with source.open("w") as fasta:
        for part, count in zip(PARTS, genomes, strict=True):
            for label in ("virus", "others"):
                for number in range(count):
                    sequence = genome(label, codons, number * 10 + PARTS.index(part))
                    fasta.write(f">{part}_{label}_{number}\n{sequence}\n")
                if count:
                    row = (source.name, label, f"{label} group", part, f"^{part}_{label}_")
                    rows.append("\t".join(row))
    table = source.with_suffix(".tsv")
    table.write_text("\n".join(rows) + "\n")
    options = {"genomes": root.parent, "lengths": (LENGTH,), "content": "records", **options}
    prepare_dataset(table, Dataset(root), lambda event: None, **options)
    return Dataset(root)


def make_dataset(
    root: Path, genomes: tuple[int, int, int] = (6, 2, 2), codons: int = 1000, shard: int = 50
) -> Dataset:
    """The same with the frames of these genomes, and so many in a shard."""
    with patch.object(splitting, "LEAST_FRAMES", shard):
        return make_records(root, genomes, codons, content="frames")


def embed_toy(dataset: Dataset, **changed) -> None:
    """Embed a data set with the toy encoders, or others in their place."""
    analysis = replace(AnalysisSettings(model_type="toy").resolved(), **changed)
    embed(dataset, analysis, MachineSettings(device="cpu"), lambda event: None)
