"""A small labelled data set of whole records, made by ``train prepare`` itself."""

from __future__ import annotations

from pathlib import Path

from tests.training_data import LENGTH, genome
from tests.unit.training.made_genomes import RecordedProgress
from virnucpro.training.data.dataset import PARTS, Dataset
from virnucpro.training.data.prepare import DatasetSettings, prepare_dataset


def make_records(
    root: Path,
    genomes: tuple[int, int, int] = (4, 2, 2),
    codons: int = 1000,
    lengths: tuple[int, ...] = (LENGTH,),
) -> Dataset:
    """A data set with so many genomes of each label in train, validation and test.

    Virus is rich in A and T, the others in C and G; see :func:`tests.training_data.genome`.
    """
    root.mkdir(parents=True, exist_ok=True)
    table = ["file\tlabel\tgroup\tsplit\tmatch"]
    source = root.parent / f"{root.name}.fa"
    with source.open("w") as fasta:
        for part, count in zip(PARTS, genomes, strict=True):
            for label in ("virus", "others"):
                for number in range(count):
                    sequence = genome(label, codons, number * 10 + PARTS.index(part))
                    fasta.write(f">{part}_{label}_{number}\n{sequence}\n")
                if count:
                    row = (source.name, label, f"{label} group", part, f"^{part}_{label}_")
                    table.append("\t".join(row))
    path = source.with_suffix(".tsv")
    path.write_text("\n".join(table) + "\n")
    settings = DatasetSettings(path, path.parent, lengths, content="records")
    dataset = Dataset(root)
    prepare_dataset(settings, dataset, RecordedProgress())
    return dataset
