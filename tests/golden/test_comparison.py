"""The comparison of labels: a tie may have either label, and nothing else may differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.comparison import assert_same_consensus, assert_same_predictions

PREDICTIONS = "Sequence_ID\tPrediction\tscore1\tscore2\n"
CONSENSUS = "Modified_ID\tIs_Virus\tmax_score_0\tmax_score_1\n"


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("row", "same"),
    [
        ("a\tvirus\t0.499999\t0.500001\n", True),
        ("a\tothers\t0.5\t0.5\n", True),
        ("a\tothers\t0.49998\t0.50002\n", False),  # other scores
        ("b\tvirus\t0.499999\t0.500001\n", False),
    ],
)
@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_a_tie_may_have_either_label(tmp_path: Path, row: str, same: bool, shift: float) -> None:
    name, label, others, virus = row.split()
    moved = f"{name}\t{{}}\t{float(others) - shift}\t{float(virus) + shift}\n"
    expected = f"a\t{{}}\t{0.499999 - shift}\t{0.500001 + shift}\n"
    ours = _written(tmp_path / "ours", PREDICTIONS + moved.format(label))
    theirs = _written(tmp_path / "theirs", PREDICTIONS + expected.format("virus"))
    table = _written(tmp_path / "table", CONSENSUS + moved.format(label == "virus"))
    older = _written(tmp_path / "older", CONSENSUS + expected.format(True))
    comparisons = [
        lambda: assert_same_predictions(ours, theirs),
        lambda: assert_same_consensus(table, older, older),
    ]
    for compare in comparisons:
        if same and (label == "virus" or not shift):
            compare()
        else:
            with pytest.raises(AssertionError):
                compare()
