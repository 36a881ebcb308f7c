"""Groups against the pool of the other label, lengths, intervals over genomes, and what is missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pandas import DataFrame, Series
from sklearn.metrics import roc_auc_score

from tests.declared import line_of
from virnucpro.evaluation.measure import NO_GROUP, ONE_CLASS, SliceRow, evaluate, slice_title
from virnucpro.evaluation.run import as_tsv
from virnucpro.evaluation.tables import find_predictions, join, read_labels
from virnucpro.tables import CONTIGS, EVALUATION


def measured(scores, virus, groups="", genomes=None, lengths=None, fdr=np.nan) -> dict[str, Any]:
    """What is measured of lists; groups are names, genomes numbers, lengths bases."""
    rows = DataFrame({"score": np.array(scores, float), "called": False})
    rows["label"] = np.where(np.array(virus, bool), "virus", "others")
    genomes = range(len(rows)) if genomes is None else genomes
    rows = rows.assign(group=groups, genome=genomes, fdr=fdr)
    rows["length"] = None if lengths is None else Series(lengths, dtype="category")
    return evaluate(rows, rows[:0], 0.5)[1]


def _by_name(found: dict[str, Any]) -> dict[str, SliceRow]:
    return {slice_title(line): line for line in found["slices"]}


def test_a_group_is_measured_against_all_rows_of_the_other_label():
    scores = [0.9, 0.4, 0.6, 0.2, 0.8, 0.1]
    virus = [1, 1, 1, 0, 0, 0]
    groups = ["a", "b", "b", "c", "c", "d"]
    lines = _by_name(measured(scores, virus, groups))
    a, b, c, d = (lines[name] for name in ("virus a", "virus b", "others c", "others d"))
    areas = [line["auroc"] for line in (a, b, c, d, lines["all"])]
    assert areas == pytest.approx([1, 4 / 6, 4 / 6, 1, 7 / 9])  # 0.8 is above both 0.4 and 0.6
    names = ("virus", "others", "tp", "fn", "fp", "tn", "correct")
    assert [b[name] for name in names] == [2, 3, 1, 1, 1, 2, 0.5]
    assert b["accuracy"] == pytest.approx(3 / 5)
    assert [c[name] for name in ("virus", "others", "correct")] == [3, 2, 0.5]
    assert b["ece"] is None  # of an arbitrary mixture
    assert lines["all"]["correct"] == lines["all"]["accuracy"]


def test_lengths_are_not_pooled():
    scores = [0.9, 0.1, 0.2, 0.8]
    found = measured(scores, [1, 0, 1, 0], lengths=[500, 500, 150, 150])
    assert [(line["name"], line["auroc"]) for line in found["slices"][1:]] == [(150, 0), (500, 1)]


@pytest.mark.parametrize("digits", [16, 1])  # 1: ten scores, full of ties
def test_the_interval_is_that_of_a_plain_bootstrap(digits):
    """Drawn one genome at a time, measured by scikit-learn, without levels and cells.

    The four rows of a genome have nearly one score: as little evidence as one row.
    """
    rng = np.random.default_rng(3)
    genomes = np.repeat(np.arange(60), 4)
    virus = genomes % 2 == 0
    level = np.repeat(rng.normal(0, 1, 60), 4) + np.where(virus, 1.0, 0.0)
    scores = (1 / (1 + np.exp(-level - rng.normal(0, 0.01, 240)))).round(digits)
    ours = measured(scores, virus, genomes=genomes)["slices"][0]["intervals"]
    members = [np.flatnonzero(genomes == g) for g in range(60)]
    areas, correct, rng = [], [], np.random.default_rng(9)
    for _ in range(400):
        drawn = np.concatenate(
            [members[g] for side in (0, 1) for g in rng.integers(0, 30, 30) * 2 + side]
        )
        areas.append(roc_auc_score(virus[drawn], scores[drawn]))
        correct.append(((scores >= 0.5) == virus)[drawn].mean())
    assert ours["auroc"] == pytest.approx(np.percentile(areas, (2.5, 97.5)), abs=0.025)
    assert ours["correct"] == pytest.approx(np.percentile(correct, (2.5, 97.5)), abs=0.03)


def test_a_single_genome_has_no_interval():
    scores, virus = [0.9, 0.8, 0.4, 0.1, 0.2, 0.6], [1, 1, 1, 0, 0, 0]
    groups, genomes = ["a", "a", "b", "c", "c", "c"], [0, 0, 1, 2, 3, 4]
    lines = _by_name(measured(scores, virus, groups, genomes))
    known = {
        name: [n for n, ends in row["intervals"].items() if ends] for name, row in lines.items()
    }
    both = ["auroc", "correct"]
    assert known == {"all": both, "virus a": [], "virus b": [], "others c": both}
    assert lines["virus a"]["genomes"] == 1
    assert [name for name, row in lines.items() if row["note"]] == ["virus a", "virus b"]


def test_stated_and_realised_rates_of_false_discoveries():
    fdr = [0.005, 0.03, 0.05, 0.15, np.nan]
    found = measured([0.9, 0.8, 0.7, 0.6, 0.1], [1, 1, 0, 0, 0], fdr=fdr)["false_discovery_rates"]
    rows = [(0.01, 1, 0, 0), (0.05, 3, 1, 1 / 3), (0.1, 3, 1, 1 / 3), (0.2, 4, 2, 1 / 2)]
    assert [tuple(row.values()) for row in found] == rows
    assert measured([0.9, 0.1], [1, 0])["false_discovery_rates"] == []


def test_one_class_is_said_and_not_made_up():
    found = measured([0.9, 0.1, 0.3], [1, 1, 1], ["a", "a", "b"])["slices"]
    empty = {(row["auroc"], row["intervals"]["auroc"], row["note"]) for row in found}
    assert empty == {(None, None, ONE_CLASS)}


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


def _slices(files: tuple[Path, Path], threshold: float | None) -> list[SliceRow]:
    rows, missed, _ = join(find_predictions(files[0], None), read_labels(files[1]))
    return evaluate(rows, missed, threshold)[1]["slices"]


@pytest.mark.parametrize(
    ("threshold", "calls"),
    [(None, [2, 1, 1, 1]), (0.72, [2, 1, 1, 1]), (0.5, [3, 0, 1, 1])],  # of (1 + virus score) / 2
)
def test_a_contig_counts_as_predict_called_it(files, threshold, calls):
    whole = _slices(files, threshold)[0]
    assert [whole[name] for name in ("tp", "fn", "fp", "tn")] == calls


def test_viruses_without_a_score_are_counted_as_missed(files):
    slices = _slices(files, None)
    assert slices[0]["recall"] == pytest.approx(2 / 3)
    assert {slice_title(row): row["recall_all"] for row in slices} == {
        "all": 2 / 5,
        "virus A": 1 / 2,
        "virus B": 1 / 3,
        "others H": 2 / 5,
        "up to 500 bases": 1 / 2,
        "1,000 to 3,000 bases": 1 / 2,
        "3,000 to 10,000 bases": 0,  # nothing of this length was scored
    }
    files[1].write_text(files[1].read_text().replace("\tB\n", "\t\n"))
    without = {row["name"]: row["recall_all"] for row in _slices(files, None)[-3:]}
    assert without == {"A": 1 / 2, NO_GROUP: 1 / 3, "H": 2 / 5}
    header, overall, *_ = (line.split("\t") for line in as_tsv(slices).splitlines())
    assert tuple(header) == EVALUATION.row._fields
    cells = dict(zip(header, overall, strict=True))
    assert [cells[name] for name in ("recall_all", "label")] == ["0.400000", "NA"]
    low, high = slices[0]["intervals"]["auroc"]
    assert (cells["auroc_low"], cells["auroc_high"]) == (f"{low:.6f}", f"{high:.6f}")
