"""Data preparation on real genomes: coliphages beside a few held-out phages and organelles."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from virnucpro.io.records import read_records
from virnucpro.training.data.dataset import PARTS, Dataset
from virnucpro.training.data.table import read_genome_table

LITE = Path(__file__).parents[2] / "examples/lite/genomes.tsv"
COMPLEMENT = str.maketrans("ACGT", "TGCA")
ROWS = """\
file\tlabel\tgroup\tsplit\tgenome
viral/phages_small.fa.gz\tvirus\tsmall phages\ttest
viral/coliphages.fa.gz\tvirus\tcoliphages\ttest=0
nonviral/organelles.fa.gz\tothers\torganelles\ttest=0.3\t^(?:plastid|mitochondria)_(\\S+?)_\\d+_\\d+\\s
"""


def _words(sequence: str) -> set[str]:
    """All canonical 31-mers, one string after the other."""
    upper = sequence.upper()
    found = (upper[start : start + 31] for start in range(len(upper) - 30))
    return {
        min(word, word.translate(COMPLEMENT)[::-1]) for word in found if set(word) <= set("ACGT")
    }


@pytest.fixture(scope="module")
def rows(genomes: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    from virnucpro.cli import run

    folder = tmp_path_factory.mktemp("training")
    (folder / "table.tsv").write_text(ROWS)
    command = [
        "train",
        "prepare",
        folder / "table.tsv",
        "--genomes",
        genomes,
        "-o",
        folder / "data",
    ]
    assert run([str(word) for word in [*command, "-e", "300,500", "--quiet"]]) == 0
    dataset = Dataset(folder / "data")
    with dataset.genomes_table.open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    assert sum(int(row["frames"]) for row in rows) == sum(
        1 for part in PARTS for _ in dataset.frames(part)
    )
    return rows


def test_relatives_are_those_that_counting_all_31_mers_finds(
    genomes: Path, rows: list[dict[str, str]]
) -> None:
    held: set[str] = set()
    for record in read_records(genomes / "viral/phages_small.fa.gz"):
        held |= _words(record.sequence)
    notes = {row["record"]: row["note"] for row in rows}
    checked = {True: 0, False: 0}
    for record in read_records(genomes / "viral/coliphages.fa.gz"):
        related = notes[record.id].endswith("with test")
        if checked[related] == 6:
            continue
        checked[related] += 1
        words = _words(record.sequence)
        share = len(words & held) / len(words)
        assert (share > 0.05) == related
        if related:
            assert float(notes[record.id].split()[1]) / 100 == pytest.approx(share, abs=0.03)
    assert min(checked.values()) > 0


def test_slices_of_an_organelle_stay_together(rows: list[dict[str, str]]) -> None:
    own = [row for row in rows if row["group"] == "organelles"]
    parts = {(row["genome"], row["part"]) for row in own}
    assert len(parts) == len({genome for genome, _ in parts}) < len(own)


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
