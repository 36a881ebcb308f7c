"""The table of the model ``lite`` beside the genomes that it names."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from virnucpro.training.data.table import read_genome_table

LITE = Path(__file__).parents[2] / "examples/lite/genomes.tsv"


def test_the_table_of_the_small_model_covers_all_genomes(genomes: Path) -> None:
    folder = genomes.parent
    if not all((folder / name).is_dir() for name in ("genomes_more", "genomes_wide")):
        pytest.skip("the further genomes are not here")
    table = read_genome_table(LITE, folder)
    labels = {"viral": "virus", "nonviral": "others", "other": "others"}
    listed = {}
    for name in ("genomes", "genomes_more", "genomes_wide"):
        with (folder / name / "MANIFEST.tsv").open(newline="") as stream:
            for row in csv.DictReader(stream, delimiter="\t"):
                listed[f"{name}/{row['file']}"] = labels[row["label"]]
    assert {row.file: row.label for row in table} == listed
    held = {row.group for row in table if row.part == "test"}
    assert len(held) == 18
    outside = {row.part for row in table if row.group.startswith("outside ")}
    assert outside == {"validation", "test"}
