"""From a table to a data set: everything that is on the disk afterwards."""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.unit.training.made_genomes import (
    RecordedProgress,
    coding,
    mutated,
    write_fasta,
    write_table,
)
from virnucpro.errors import InputError, ResumeRefusedError, UsageError
from virnucpro.io.chunks import chunk_spans, record_of
from virnucpro.io.fasta import read_fasta
from virnucpro.io.frames import chunk_of, open_frames
from virnucpro.layout import MOLECULES
from virnucpro.store.disk import Disk
from virnucpro.training.data.dataset import PARTS, Dataset
from virnucpro.training.data.prepare import DatasetSettings, prepare_dataset

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


@pytest.fixture
def settings(tmp_path):
    for name, records in FILES.items():
        write_fasta(tmp_path / "in" / name, records)
    return DatasetSettings(
        write_table(tmp_path / "genomes.tsv", ROWS),
        tmp_path / "in",
        (300, 150),
        validation=0.2,
        test=0.1,
        shard_size=40,
        seed=3,
    )


@pytest.fixture
def made(settings, tmp_path):
    dataset = Dataset(tmp_path / "data")
    return prepare_dataset(settings, dataset, RecordedProgress()), dataset


def genomes(dataset):
    with dataset.genomes_table.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def shards(dataset, part, molecule):
    layout = dataset.layout(part)
    numbers = range(1, dataset.shards(part) + 1)
    assert len(list(layout.folder(molecule).iterdir())) == len(numbers)
    return [list(read_fasta(layout.split(molecule, number))) for number in numbers]


def test_shards_and_tables_hold_the_same_frames_in_the_same_order(made):
    _, dataset = made
    assert dataset.lengths() == (300, 150)
    for part in PARTS:
        rows = list(dataset.frames(part))
        assert len(rows) > 40
        for molecule in MOLECULES:
            files = shards(dataset, part, molecule)
            assert [name for file in files for name, _ in file] == [row.frame for row in rows]
            assert {len(file) for file in files[:-1]} == {40}
        assert all(chunk_of(row.frame) == row.chunk for row in rows)


def test_every_frame_is_what_predict_makes_of_the_record(made):
    _, dataset = made
    sequences = {h.split()[0]: s for name in FILES for h, s in FILES[name] if name != "more.fa"}
    sequences |= dict(zip(("B1.2", "N"), (s for _, s in FILES["more.fa"]), strict=True))
    seen = 0
    for part in PARTS:
        pieces = {
            molecule: dict(p for f in shards(dataset, part, molecule) for p in f)
            for molecule in MOLECULES
        }
        for row in dataset.frames(part):
            named, number = record_of(row.chunk)
            assert named == f"{row.record}_{row.length}bp"
            sequence = sequences[row.record]
            start, stop = chunk_spans(len(sequence), row.length)[number - 1]
            (result,) = open_frames([sequence[start:stop]])
            (frame,) = [f for f in result.frames if row.frame == row.chunk + f.label]
            assert pieces["nucleotide"][row.frame] == frame.nucleotide
            assert pieces["protein"][row.frame] == frame.protein
            seen += 1
    assert seen == len({row.frame for part in PARTS for row in dataset.frames(part)})


def test_parts_are_made_of_whole_genomes(made):
    _, dataset = made
    part_of = {}
    for row in genomes(dataset):
        if row["part"] in PARTS:
            assert part_of.setdefault(row["genome"], row["part"]) == row["part"]
    for part in PARTS:
        assert {row.genome for row in dataset.frames(part)} <= {
            g for g, p in part_of.items() if p == part
        }
    assert part_of["P3"]
    assert "P3_frag1" not in part_of
    assert part_of["H1"] == part_of["H2"] == "test"
    assert part_of["N"] == "train"
    assert part_of["B1"]
    assert part_of["B1.2"]


def test_what_became_of_every_record(made):
    prepared, dataset = made
    rows = {row["record"]: row for row in genomes(dataset)}
    assert list(rows) == [
        *(h.split()[0] for f in ("phages.fa.gz", "held.fa", "bacteria.fa") for h, _ in FILES[f]),
        "B1.2",
        "N",
    ]
    assert rows["B98"]["part"] == "dropped"
    assert rows["B98"]["note"].startswith("shares 5")
    assert rows["short"]["chunks"] == "2"
    assert (rows["short"]["frames"], rows["short"]["note"]) == (
        "0",
        "none of its frames is in the data set",
    )
    assert rows["H1"] | {"frames": ""} == {
        "record": "H1",
        "source": "held.fa",
        "label": "virus",
        "group": "held",
        "genome": "H1",
        "taxon": "H1",
        "part": "test",
        "bases": "2600",
        "chunks": "27",
        "frames": "",
        "note": "",
    }
    counts = Counter(row.record for part in PARTS for row in dataset.frames(part))
    assert {name: int(row["frames"]) for name, row in rows.items()} == {
        name: counts[name] for name in rows
    }
    left = {entry["reason"]: entry for entry in prepared.description["left_out"]}
    assert left["related"] == {"reason": "related", "genomes": 1, "records": 1, "bases": 4600}
    assert left["unused"]["records"] == 0


def test_train_and_validation_are_balanced_by_length_and_test_is_not(made):
    prepared, dataset = made
    for part in ("train", "validation"):
        counts = Counter((row.length, row.label) for row in dataset.frames(part))
        for length in (300, 150):
            assert counts[length, "virus"] == counts[length, "others"] > 0
    facts = prepared.description
    test = Counter(row.label for row in dataset.frames("test"))
    assert test["virus"] != test["others"]
    assert facts["parts"]["test"] == {
        "shards": dataset.shards("test"),
        "frames": test.total(),
        **test,
    }
    for row in facts["counts"]:
        assert row["frames"] <= row["open"]
        if row["part"] == "test":
            assert row["frames"] == row["open"]
    assert sum(row["frames"] for row in facts["counts"]) == sum(
        p["frames"] for p in facts["parts"].values()
    )
    assert sum(row["chunks"] for row in facts["counts"]) == sum(
        int(row["chunks"]) for row in genomes(dataset)
    )


def test_shards_are_shuffled(made):
    _, dataset = made
    records = [row.record for row in dataset.frames("train")]
    changes = sum(a != b for a, b in pairwise(records))
    assert changes > len(records) / 2
    assert {row.length for row in list(dataset.frames("train"))[:40]} == {300, 150}


def _digests(root):
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file() and path.name not in ("dataset.json", "dataset.json.lock")
    }


def test_two_runs_are_equal_to_the_byte(made, settings, tmp_path):
    first, dataset = made
    other = Dataset(tmp_path / "other")
    again = prepare_dataset(settings, other, RecordedProgress(), command=("again",))
    assert _digests(dataset.root) == _digests(other.root)
    assert first.description | {"command": ["again"]} == again.description == other.description
    prepare_dataset(replace(settings, seed=4), Dataset(tmp_path / "seed"), RecordedProgress())
    assert _digests(dataset.root) != _digests(tmp_path / "seed")


def test_a_stride(settings, tmp_path):
    rows = [{"file": "held.fa", "label": "virus", "group": "g", "split": "test"}]
    wide = replace(settings, table=write_table(tmp_path / "held.tsv", rows), stride=1000)
    dataset = Dataset(tmp_path / "wide")
    prepare_dataset(wide, dataset, RecordedProgress())
    assert [row["chunks"] for row in genomes(dataset)] == ["6", "6"]  # 0, 1000, 2000; both lengths
    assert {len(s) for f in shards(dataset, "test", "nucleotide") for _, s in f} <= {
        298,
        299,
        300,
        148,
        149,
        150,
    }


def test_the_same_again_does_nothing(made, settings):
    first, dataset = made
    before = {
        p: p.stat().st_mtime_ns for p in dataset.root.rglob("*") if p.name != "dataset.json.lock"
    }
    again = prepare_dataset(settings, dataset, RecordedProgress())
    assert (first.outcome, again.outcome) == ("made", "found")
    assert again.description == first.description
    assert {
        p: p.stat().st_mtime_ns for p in dataset.root.rglob("*") if p.name != "dataset.json.lock"
    } == before


def test_another_recipe_is_refused_and_forced(made, settings, tmp_path):
    _, dataset = made
    feature = dataset.layout("train").features("protein", 1)
    feature.write_bytes(b"took a day")
    with pytest.raises(ResumeRefusedError, match=r"seed: was 3, is 4"):
        prepare_dataset(replace(settings, seed=4), dataset, RecordedProgress())
    write_fasta(tmp_path / "in" / "held.fa", [("H1", coding(77, 2000))])
    write_table(settings.table, ROWS[:3])
    with pytest.raises(ResumeRefusedError) as error:
        prepare_dataset(settings, dataset, RecordedProgress())
    assert "rows of the table: was sha256" in str(error.value)
    assert "genome file held.fa: was sha256" in str(error.value)
    more = next(line for line in str(error.value).splitlines() if "genome file more.fa" in line)
    assert "is not set" in more
    assert feature.exists()
    assert prepare_dataset(settings, dataset, RecordedProgress(), force=True).outcome == "remade"
    assert not feature.exists()
    assert (dataset.previous / "train_protein" / feature.name).read_bytes() == b"took a day"
    assert (dataset.previous / "dataset.json").exists()
    assert prepare_dataset(settings, dataset, RecordedProgress()).outcome == "found"


class Stopping(Disk):
    """Ends the run at the n-th new file."""

    def __init__(self, after: int) -> None:
        self.left = after

    def open_new(self, path):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return super().open_new(path)


def test_an_interrupted_run_is_no_data_set_and_the_next_one_starts_over(made, settings, tmp_path):
    _, whole = made
    files = sum(1 for p in whole.root.rglob("*") if p.is_file() and p.name != "dataset.json.lock")
    for after in (0, 1, 3, files - 1, files):
        dataset = Dataset(tmp_path / f"stopped{after}")
        with pytest.raises(KeyboardInterrupt):
            prepare_dataset(settings, dataset, RecordedProgress(), disk=Stopping(after))
        assert not dataset.description_file.exists()
        assert prepare_dataset(settings, dataset, RecordedProgress()).outcome == "made"
        assert _digests(dataset.root) == _digests(whole.root)


def test_a_file_that_came_after_a_refused_table_is_not_ours(settings, tmp_path):
    dataset = Dataset(tmp_path / "data")
    rows = [{"file": "held.fa", "label": "virus", "group": "g", "match": "nothing like it"}]
    wrong = replace(settings, table=write_table(tmp_path / "wrong.tsv", rows))
    with pytest.raises(InputError):
        prepare_dataset(wrong, dataset, RecordedProgress())
    dataset.genomes_table.write_text("mine")
    with pytest.raises(UsageError, match=r"not its own: genomes\.tsv"):
        prepare_dataset(settings, dataset, RecordedProgress())
    assert prepare_dataset(settings, dataset, RecordedProgress(), force=True).outcome == "made"
    previous = dataset.previous.parent
    assert [path.read_text() for path in previous.rglob("genomes.tsv")] == ["mine"]


def test_foreign_folders_are_left_alone(settings, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train_contigs.tsv").write_text("of a run of predict")
    with pytest.raises(UsageError, match=r"not its own: train_contigs\.tsv"):
        prepare_dataset(settings, Dataset(tmp_path / "data"), RecordedProgress())
    with pytest.raises(UsageError, match="is a file"):
        prepare_dataset(settings, Dataset(settings.table), RecordedProgress())


def test_progress_adds_up(settings, tmp_path):
    watch = RecordedProgress()
    prepare_dataset(settings, Dataset(tmp_path / "data"), watch)
    assert watch.done == watch.totals
    assert len(watch.steps) == 4


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"match": "nothing like it"}, "is for no record of it"),
        ({"genome": "(nothing)"}, "genome finds no name in the header of"),
    ],
)
def test_rows_that_fit_nothing(settings, tmp_path, row, said):
    write_table(settings.table, [*ROWS[1:3], {**ROWS[0], **row}])
    with pytest.raises(InputError, match=f"genomes.tsv: line 4: .*{said}"):
        prepare_dataset(settings, Dataset(tmp_path / "data"), RecordedProgress())


def test_the_first_row_that_matches_takes_a_record_and_the_rest_is_unused(settings, tmp_path):
    rows = [
        {"file": "bacteria.fa", "label": "others", "group": "one", "match": "^B1 "},
        {
            "file": "./bacteria.fa",
            "label": "others",
            "group": "ten",
            "match": "^B1",
            "split": "train",
        },
    ]
    write_table(settings.table, rows)
    dataset = Dataset(tmp_path / "data")
    prepared = prepare_dataset(settings, dataset, RecordedProgress())
    found = {row["record"]: row for row in genomes(dataset)}
    assert found["B1"]["group"] == "one"
    assert {found[n]["group"] for n in ("B10", "B11", "B12", "B13")} == {"ten"}
    assert (found["B2"]["part"], found["B2"]["note"]) == ("unused", "no row of the table is for it")
    assert prepared.description["left_out"][2]["records"] == 12
    assert any("no frames of label virus" in notice for notice in prepared.description["notices"])


def test_nothing_open_at_all(settings, tmp_path):
    write_fasta(tmp_path / "in" / "held.fa", [("H", "TTAGTTAGTTAACTAACTAA" * 40)])
    write_table(settings.table, [ROWS[1]])
    with pytest.raises(InputError, match="no genome has an open frame"):
        prepare_dataset(settings, Dataset(tmp_path / "data"), RecordedProgress())
    assert not (tmp_path / "data" / "dataset.json").exists()
    assert not Dataset(tmp_path / "data").sequences_file.exists()


def test_genbank_keeps_annotated_frames_only(settings, tmp_path):
    pytest.importorskip("Bio")
    from Bio.Seq import Seq

    from tests.unit.training.test_genbank import cds, genbank

    sequence = coding(42, 3000)
    protein = str(Seq(sequence[:1500]).translate())
    text = genbank(cds(0, 1500, translation=protein), sequence=sequence, name="GB1.1")
    text += genbank(sequence=coding(43, 3000), name="GB2.1")
    (tmp_path / "in" / "virus.gbff").write_text(text)
    rows = [
        {"file": "virus.gbff", "label": "virus", "group": "g", "split": "test", "genome": r"^(\S+)"}
    ]
    write_table(settings.table, rows)
    dataset = Dataset(tmp_path / "data")
    prepare_dataset(settings, dataset, RecordedProgress())
    frames = list(dataset.frames("test"))
    proteins = [s for f in shards(dataset, "test", "protein") for _, s in f]
    assert {row.record for row in frames} == {"GB1.1"}
    assert all(one in protein for one in proteins)
    assert {row.frame[-2] for row in frames} == {"F"}
    whole = [record for record in chunk_spans(3000, 300) if record[1] <= 1500]
    assert len([row for row in frames if row.length == 300]) == len(whole)
    assert json.loads(dataset.description_file.read_text())["sources"][0]["file"] == "virus.gbff"


def test_a_source_that_changes_meanwhile(settings, tmp_path):
    class Meddling(RecordedProgress):
        def begin(self, title: str, total: float) -> None:
            super().begin(title, total)
            if title.startswith("cutting"):
                write_fasta(
                    tmp_path / "in" / "held.fa",
                    [("H1", coding(5, 2600)), ("H2", mutated(coding(5, 2600), 0.5))],
                )

    with pytest.raises(InputError, match=r"held\.fa changed while it was used"):
        prepare_dataset(settings, Dataset(tmp_path / "data"), Meddling())
