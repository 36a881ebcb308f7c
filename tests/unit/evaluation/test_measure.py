"""Groups against the pool of the other label, lengths, intervals over genomes, and what is missed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pandas import DataFrame, Series

from tests.declared import line_of
from virnucpro.evaluation.measure import NO_GROUP, ONE_CLASS, Evaluation, SliceRow, evaluate
from virnucpro.evaluation.report import as_terminal, as_tsv
from virnucpro.evaluation.tables import Sample, find_predictions, join, read_labels
from virnucpro.tables import CONTIGS, EVALUATION


def _sample(scores, virus, groups="", genomes=None, lengths=None, fdr=np.nan) -> Sample:
    """A sample from lists; groups are names, genomes numbers, lengths bases."""
    rows = DataFrame({"score": np.array(scores, float), "called": False})
    rows["label"] = np.where(np.array(virus, bool), "virus", "others")
    genomes = range(len(rows)) if genomes is None else genomes
    rows = rows.assign(group=groups, genome=genomes, fdr=fdr)
    rows["length"] = None if lengths is None else Series(lengths, dtype="category")
    return Sample(rows, rows[:0], {})


def _by_name(found: Evaluation) -> dict[str, SliceRow]:
    return {f"{line['label']} {line['name']}".strip(): line for line in found.slices}


def test_a_group_is_measured_against_all_rows_of_the_other_label() -> None:
    scores = [0.9, 0.4, 0.6, 0.2, 0.8, 0.1]
    virus = [1, 1, 1, 0, 0, 0]
    groups = ["a", "b", "b", "c", "c", "d"]
    lines = _by_name(evaluate(_sample(scores, virus, groups), 0.5))
    a, b, c, d = (lines[name] for name in ("virus a", "virus b", "others c", "others d"))
    areas = [line["auroc"] for line in (a, b, c, d, lines["all"])]
    assert areas == pytest.approx([1, 4 / 6, 4 / 6, 1, 7 / 9])  # 0.8 is above both 0.4 and 0.6
    names = ("virus", "others", "tp", "fn", "fp", "tn", "correct")
    assert [b[name] for name in names] == [2, 3, 1, 1, 1, 2, 0.5]
    assert b["accuracy"] == pytest.approx(3 / 5)
    assert [c[name] for name in ("virus", "others", "correct")] == [3, 2, 0.5]
    assert b["ece"] is None  # of an arbitrary mixture
    assert lines["all"]["correct"] == lines["all"]["accuracy"]


def test_lengths_are_not_pooled() -> None:
    scores = [0.9, 0.1, 0.2, 0.8]
    found = evaluate(_sample(scores, [1, 0, 1, 0], lengths=[500, 500, 150, 150]), 0.5)
    assert [(line["name"], line["auroc"]) for line in found.of_kind("length")] == [
        (150, 0),
        (500, 1),
    ]


def _clustered(genomes: int, rows: int, seed: int = 0) -> Sample:
    """``rows`` a genome that have nearly one score: as little evidence as one row a genome."""
    rng = np.random.default_rng(seed)
    virus = np.repeat(np.arange(genomes) % 2 == 0, rows)
    level = np.repeat(rng.normal(0, 1, genomes), rows) + np.where(virus, 1.0, 0.0)
    scores = 1 / (1 + np.exp(-level - rng.normal(0, 0.01, genomes * rows)))
    return _sample(scores, virus, genomes=np.repeat(np.arange(genomes), rows))


@pytest.mark.parametrize("digits", [16, 1])  # 1: ten scores, full of ties
def test_the_interval_is_that_of_a_plain_bootstrap(digits: int) -> None:
    """Drawn one genome at a time, measured by scikit-learn, without levels and cells."""
    from sklearn.metrics import roc_auc_score

    sample = _clustered(60, 4, seed=3)
    rows = sample.rows.assign(score=sample.rows.score.round(digits))
    sample = sample._replace(rows=rows)
    virus, scores = (rows.label == "virus").to_numpy(), rows.score.to_numpy()
    ours = evaluate(sample, 0.5).slices[0]
    rng = np.random.default_rng(9)
    members = [np.flatnonzero(rows.genome == g) for g in range(60)]
    areas, correct = [], []
    for _ in range(400):
        drawn = np.concatenate(
            [members[g] for side in (0, 1) for g in rng.integers(0, 30, 30) * 2 + side]
        )
        areas.append(roc_auc_score(virus[drawn], scores[drawn]))
        correct.append(((scores >= 0.5) == virus)[drawn].mean())
    for name, values, error in (("auroc", areas, 0.025), ("correct", correct, 0.03)):
        found = [ours[f"{name}_low"], ours[f"{name}_high"]]
        assert found == pytest.approx(np.percentile(values, (2.5, 97.5)), abs=error)


def test_a_single_genome_has_no_interval() -> None:
    scores, virus = [0.9, 0.8, 0.4, 0.1, 0.2, 0.6], [1, 1, 1, 0, 0, 0]
    sample = _sample(scores, virus, ["a", "a", "b", "c", "c", "c"], [0, 0, 1, 2, 3, 4])
    lines = _by_name(evaluate(sample, 0.5))
    assert lines["all"]["auroc_low"] is not None
    assert lines["virus a"]["genomes"] == 1
    assert lines["virus a"]["auroc_low"] is None
    assert "fewer than 2 genomes" in lines["virus a"]["note"]
    assert lines["others c"]["correct_low"] is not None


def test_stated_and_realised_rates_of_false_discoveries() -> None:
    fdr = [0.005, 0.03, 0.05, 0.15, np.nan]
    found = evaluate(_sample([0.9, 0.8, 0.7, 0.6, 0.1], [1, 1, 0, 0, 0], fdr=fdr), 0.5)
    rows = [(d["stated"], d["contigs"], d["false"]) for d in found.false_discoveries]
    assert rows == [(0.01, 1, 0), (0.05, 3, 1), (0.1, 3, 1), (0.2, 4, 2)]
    assert found.false_discoveries[1]["realised"] == pytest.approx(1 / 3)
    assert evaluate(_sample([0.9, 0.1], [1, 0]), 0.5).false_discoveries == []


def test_one_class_is_said_and_not_made_up() -> None:
    found = evaluate(_sample([0.9, 0.1, 0.3], [1, 1, 1], ["a", "a", "b"]), 0.5)
    assert all(line["auroc"] is None for line in found.slices)
    assert all(line["note"] == ONE_CLASS for line in found.slices)
    assert all(line["auroc_low"] is None for line in found.slices)


# id, label, group, length, call, virus score
ROWS = [
    ("v1", "virus", "A", 400, "virus", 0.9),
    ("v2", "virus", "A", 400, "undecided", 0.9),  # it missed a cut
    ("v3", "virus", "B", 2000, "virus", 0.4),
    ("v4", "virus", "B", 2000, "unscored", None),
    ("v5", "virus", "B", 9000, "unscored", None),
    ("h1", "others", "H", 400, "nonvirus", -0.9),
    ("h2", "others", "H", 2000, "virus", 0.5),
    ("h3", "others", "H", 2000, "unscored", None),
]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    lines, labels = [CONTIGS.header], ["record\tlabel\tgroup\n"]
    for name, label, group, length, called, score in ROWS:
        status = "no_open_frame" if score is None else "scored"
        call = {"call": called, "virus_score": score, "status": status}
        line = line_of(CONTIGS, record=name, length=length, **call)
        lines.append(line)
        labels.append(f"{name}\t{label}\t{group}\n")
    (tmp_path / "a_contigs.tsv").write_text("".join(lines))
    (tmp_path / "labels.tsv").write_text("".join(labels))
    return tmp_path / "a_contigs.tsv", tmp_path / "labels.tsv"


def _evaluated(files: tuple[Path, Path], threshold: float | None) -> Evaluation:
    predictions = find_predictions(files[0], None)
    return evaluate(join(predictions, read_labels(files[1])), threshold)


def _calls(evaluation: Evaluation) -> list[float | None]:
    return [evaluation.slices[0][name] for name in ("tp", "fn", "fp", "tn")]


def test_a_contig_counts_as_predict_called_it(files: tuple[Path, Path]) -> None:
    assert _calls(_evaluated(files, None)) == [2, 1, 1, 1]
    assert _calls(_evaluated(files, 0.72)) == [2, 1, 1, 1]  # of (1 + virus score) / 2
    assert _calls(_evaluated(files, 0.5)) == [3, 0, 1, 1]


def test_viruses_without_a_score_are_counted_as_missed(files: tuple[Path, Path]) -> None:
    evaluation = _evaluated(files, None)
    assert evaluation.slices[0]["recall"] == pytest.approx(2 / 3)
    shares = {(s["label"], s["name"]): s["recall_all"] for s in evaluation.slices}
    assert shares == {
        ("", "all"): 2 / 5,
        ("virus", "A"): 1 / 2,
        ("virus", "B"): 1 / 3,
        ("others", "H"): 2 / 5,
        ("", "up to 500"): 1 / 2,
        ("", "1,000 to 3,000"): 1 / 2,
        ("", "3,000 to 10,000"): 0,  # nothing of this length was scored
    }
    files[1].write_text(files[1].read_text().replace("\tB\n", "\t\n"))
    without = {s["name"]: s["recall_all"] for s in _evaluated(files, None).of_kind("group")}
    assert without == {"A": 1 / 2, NO_GROUP: 1 / 3, "H": 2 / 5}
    assert "the 2 without one" in as_terminal(evaluation, None, Path())
    header, overall, *_ = (line.split("\t") for line in as_tsv(evaluation).splitlines())
    assert tuple(header) == EVALUATION.row._fields
    assert overall[header.index("recall_all")] == "0.400000"
