"""From a table to a data set: everything that is on the disk afterwards."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from tests.unit.training.made_genomes import (
    FILES,
    ROWS,
    RecordedProgress,
    coding,
    genome_rows,
    mutated,
    write_fasta,
)
from virnucpro.contracts import MOLECULES
from virnucpro.errors import InputError, ResumeRefusedError
from virnucpro.events import Event, StepStarted
from virnucpro.io.fasta import read_fasta
from virnucpro.io.frames import chunk_of, chunk_spans, open_frames, record_of
from virnucpro.store.disk import Disk
from virnucpro.training.data.dataset import PARTS
from virnucpro.training.data.prepare import balanced, random_numbers


@pytest.fixture
def made(prepare):
    return prepare()


def shards(dataset, part, molecule):
    layout = dataset.layout(part)
    numbers = range(1, dataset.shards(part) + 1)
    assert len(list(layout.folders[molecule].iterdir())) == len(numbers)
    return [list(read_fasta(layout.split(molecule, number))) for number in numbers]


def test_shards_and_tables_hold_the_same_frames_as_predict_makes_of_the_records(made):
    _, dataset = made
    assert dataset.lengths() == (300, 150)
    sequences = {h.split()[0]: s for name in FILES for h, s in FILES[name] if name != "more.fa"}
    sequences |= dict(zip(("B1.2", "N"), (s for _, s in FILES["more.fa"]), strict=True))
    for part in PARTS:
        rows, pieces = list(dataset.frames(part)), {}
        assert len({row.frame for row in rows}) == len(rows) > 40
        for molecule in MOLECULES:
            files = shards(dataset, part, molecule)
            assert [name for file in files for name, _ in file] == [row.frame for row in rows]
            assert {len(file) for file in files[:-1]} == {40}
            pieces[molecule] = dict(pair for file in files for pair in file)
        for row in rows:
            assert chunk_of(row.frame) == row.chunk
            named, number = record_of(row.chunk)
            assert named == f"{row.record}_{row.length}bp"
            sequence = sequences[row.record]
            start, stop = chunk_spans(len(sequence), row.length)[number - 1]
            found = open_frames([sequence[start:stop]])
            place = found.labels.index(row.frame.removeprefix(row.chunk))
            assert pieces["nucleotide"][row.frame] == found.nucleotides[place]
            assert pieces["protein"][row.frame] == found.proteins[place]
    assert {row.length for row in list(dataset.frames("train"))[:40]} == {300, 150}  # shuffled


def test_what_became_of_every_record(made):
    description, dataset = made
    rows = {row["record"]: row for row in genome_rows(dataset)}
    names = ("phages.fa.gz", "held.fa", "bacteria.fa")
    assert list(rows) == [*(h.split()[0] for f in names for h, _ in FILES[f]), "B1.2", "N"]
    part_of = {}
    for row in rows.values():  # whole genomes
        if row["part"] in PARTS:
            assert part_of.setdefault(row["genome"], row["part"]) == row["part"]
    for part in PARTS:
        assert {part_of[row.genome] for row in dataset.frames(part)} == {part}
    assert {"P3", "B1", "B1.2"} <= set(part_of)
    assert (part_of["H1"], part_of["H2"], part_of["N"]) == ("test", "test", "train")
    assert rows["B98"]["part"] == "dropped"
    assert rows["B98"]["note"].startswith("shares 5")
    assert rows["short"]["frames"] == "0"
    own = {"record": "H1", "source": "held.fa", "label": "virus", "group": "held", "genome": "H1",
           "taxon": "H1", "part": "test", "bases": "2600", "note": ""}  # fmt: skip
    assert {name: rows["H1"][name] for name in own} == own
    counts = Counter(row.record for part in PARTS for row in dataset.frames(part))
    assert {name: int(row["frames"]) for name, row in rows.items()} == {n: counts[n] for n in rows}
    (dropped,) = [row for row in description["counts"] if row["part"] == "dropped"]
    assert dropped == {"part": "dropped", "label": "others", "genomes": 1, "records": 1,
                       "bases": 4600, "frames": 0}  # fmt: skip


def digests(root):
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file() and path.name not in ("dataset.json", "dataset.json.lock", "written")
    }


def test_the_same_command_gives_the_same_bytes_and_then_does_nothing(made, prepare):
    first, dataset = made
    watch = RecordedProgress()
    again, other = prepare("other", progress=watch)
    assert watch.done == watch.totals
    assert digests(dataset.root) == digests(other.root)
    assert first | {"command": ["other"]} == again == other.description
    assert digests(dataset.root) != digests(prepare("seed", seed=4)[1].root)
    files = [path for path in dataset.root.rglob("*") if path.name != "dataset.json.lock"]
    before = {path: path.stat().st_mtime_ns for path in files}
    found, _ = prepare()
    assert found == first
    assert {path: path.stat().st_mtime_ns for path in files} == before


def test_another_recipe_is_refused_and_forced(made, prepare, tmp_path):
    _, dataset = made
    feature = dataset.layout("train").features("protein", 1)
    feature.write_bytes(b"took a day")
    for name, value in (("validation", 0.5), ("test", 0.5), ("relatives", 0.5), ("seed", 4)):
        with pytest.raises(ResumeRefusedError, match=rf"{name}: was \S+, is {value}"):
            prepare(**{name: value})
    write_fasta(tmp_path / "in" / "held.fa", [("H1", coding(77, 2000))])
    with pytest.raises(ResumeRefusedError) as error:
        prepare(rows=ROWS[:3])
    assert "rows of the table: was sha256" in str(error.value)
    assert "genome file held.fa: was sha256" in str(error.value)
    assert "is not set" in str(error.value).partition("genome file more.fa")[2].splitlines()[0]
    assert feature.exists()
    prepare(rows=ROWS[:3], force=True)
    assert not feature.exists()  # it is of the other recipe


@pytest.mark.parametrize("after", [0, 1, 3, None])
def test_an_interrupted_run_is_no_data_set_and_the_next_one_starts_over(
    made, prepare, monkeypatch, after
):
    """It ends at a new file; the last one says what the data set is."""
    whole = digests(made[1].root)
    left, open_new = iter(range(len(whole) if after is None else after)), Disk.open_new

    def stopping(disk, path):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return open_new(disk, path)

    monkeypatch.setattr(Disk, "open_new", stopping)
    with pytest.raises(KeyboardInterrupt):
        prepare("stopped")
    monkeypatch.setattr(Disk, "open_new", open_new)
    assert not (made[1].root.parent / "stopped/dataset.json").exists()
    assert digests(prepare("stopped")[1].root) == whole


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([ROWS[1], {**ROWS[0], "match": "nothing like it"}], "line 3: no record is left"),
        ([ROWS[1], {**ROWS[0], "genome": "(nothing)"}], "line 3: genome finds no name"),
        ([ROWS[1], {**ROWS[1], "group": "again"}], "line 3: no record is left"),
        ([{**ROWS[1], "file": "closed.fa"}], "no genome of the table has an open frame"),
    ],
)
def test_tables_that_fit_nothing(prepare, tmp_path, rows, said):
    write_fasta(tmp_path / "in" / "closed.fa", [("H", "TTAGTTAGTTAACTAACTAA" * 40)])
    with pytest.raises(InputError, match=said):
        prepare("wrong", rows)
    assert not (tmp_path / "wrong" / "dataset.json").exists()


def test_the_first_row_that_matches_takes_a_record_and_the_rest_is_unused(prepare):
    one = {"file": "bacteria.fa", "label": "others", "group": "one", "match": "^B1 "}
    ten = {**one, "file": "./bacteria.fa", "group": "ten", "match": "^B1", "split": "train"}
    description, dataset = prepare(rows=[one, ten])
    found = {row["record"]: row for row in genome_rows(dataset)}
    assert found["B1"]["group"] == "one"
    assert {found[n]["group"] for n in ("B10", "B11", "B12", "B13")} == {"ten"}
    assert (found["B2"]["part"], found["B2"]["note"]) == ("unused", "no row of the table is for it")
    (unused,) = [row for row in description["counts"] if row["part"] == "unused"]
    assert unused["records"] == 12


def test_genbank_keeps_annotated_frames_only(prepare, tmp_path):
    from Bio.Seq import Seq

    from tests.unit.training.test_genbank import cds, genbank

    sequence = coding(42, 3000)
    protein = str(Seq(sequence[:1500]).translate())
    text = genbank(cds(0, 1500, translation=protein), sequence=sequence, name="GB1.1")
    text += genbank(sequence=coding(43, 3000), name="GB2.1")
    (tmp_path / "in" / "virus.gbff").write_text(text)
    row = {"file": "virus.gbff", "label": "virus", "group": "g", "split": "test"}
    _, dataset = prepare(rows=[row | {"genome": r"^(\S+)"}])
    frames = list(dataset.frames("test"))
    proteins = [s for f in shards(dataset, "test", "protein") for _, s in f]
    assert {row.record for row in frames} == {"GB1.1"}
    assert all(one in protein for one in proteins)
    assert {row.frame[-2] for row in frames} == {"F"}
    whole = [record for record in chunk_spans(3000, 300) if record[1] <= 1500]
    assert len([row for row in frames if row.length == 300]) == len(whole)


def test_a_source_that_changes_meanwhile(prepare, tmp_path):
    class Meddling(RecordedProgress):
        def __call__(self, event: Event) -> None:
            super().__call__(event)
            if isinstance(event, StepStarted) and event.title.startswith("reading"):
                names = [("H1", coding(5, 2600)), ("H2", mutated(coding(5, 2600), 0.5))]
                write_fasta(tmp_path / "in" / "held.fa", names)

    with pytest.raises(InputError, match=r"held\.fa changed while it was used"):
        prepare(progress=Meddling())


def test_numbers_are_the_same_on_every_machine_and_with_every_numpy():
    """The raw output of PCG-64 is fixed."""
    assert np.argsort(random_numbers(8, 0, 1)).tolist() == [7, 4, 5, 1, 6, 2, 0, 3]


def frames_of(*groups):
    """Frames of groups: part, chunk length, whether they are viruses, and their number."""
    names = ("part", "length", "virus", "number")
    rows = [(*row, group) for group, row in enumerate(groups) for _ in range(row[-1])]
    return pd.DataFrame(rows, columns=[*names, "group"])


def taken(frames, seed=7):
    return frames[balanced(frames, seed)].groupby("group").size().to_dict()


def test_either_label_gives_as_many_for_each_part_and_length():
    frames = frames_of(
        ("train", 300, True, 50),
        ("train", 300, False, 1000),
        ("train", 150, True, 30),
        ("train", 150, False, 10),
        ("validation", 300, True, 5),  # nothing to balance with
        ("test", 300, True, 9),
        ("test", 300, False, 20),
    )
    assert taken(frames) == {0: 50, 1: 50, 2: 10, 3: 10, 4: 5, 5: 9, 6: 20}
    assert (
        balanced(frames, 7).tolist() == balanced(frames, 7).tolist() != balanced(frames, 8).tolist()
    )


def test_groups_give_by_the_square_root_of_their_size():
    groups = [("train", 300, False, size) for size in (5, 1000, 100_000)]
    found = taken(frames_of(("train", 300, True, 1110), *groups))
    assert found[1] == pytest.approx(5, abs=2)
    assert found[3] / found[2] == pytest.approx(10, rel=0.25)
    assert sum(found[n] for n in (1, 2, 3)) == 1110
