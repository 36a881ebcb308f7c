"""Contigs are counted as predict called them, and viruses without a score as missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.declared import line_of
from virnucpro.evaluation.measure import NO_GROUP, Evaluation, evaluate
from virnucpro.evaluation.report import as_terminal, as_tsv
from virnucpro.evaluation.tables import find_predictions, join, read_labels
from virnucpro.tables import CONTIGS, EVALUATION

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
