"""Compare predictions with those of another run; every golden test compares labels here.

Scores are the same within ``TOLERANCE``. Where the two scores of a frame or chunk are nearer to
each other than that, rounding decides its label, and either label is right.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.inputs import table

TOLERANCE = 1e-5


def same_label(ours: str, theirs: str, others: float, virus: float) -> bool:
    """Return whether two labels agree, or the two scores are a tie."""
    return ours == theirs or abs(others - virus) < TOLERANCE


def assert_same_predictions(ours: Path, theirs: Path) -> None:
    """Compare two prediction files: ids and their order, labels, scores."""
    found, expected = table(ours), table(theirs)
    assert list(found[0]) == list(expected[0])
    _assert_same_rows(found, expected, "Sequence_ID", "Prediction", ("score1", "score2"))


def assert_same_consensus(ours: Path, labels: Path, scores: Path) -> None:
    """Compare a table of highest scores with another one and, in any order, with its labels."""
    found, expected = table(ours), table(scores)
    columns = ("max_score_0", "max_score_1")
    _assert_same_rows(found, expected, "Modified_ID", "Is_Virus", columns)
    theirs = {row["Modified_ID"]: row["Is_Virus"] for row in table(labels)}
    assert {row["Modified_ID"] for row in found} == set(theirs)
    for row in found:
        given = (float(row[column]) for column in columns)
        assert same_label(row["Is_Virus"], theirs[row["Modified_ID"]], *given), row


def _assert_same_rows(
    found: list[dict[str, str]],
    expected: list[dict[str, str]],
    name: str,
    label: str,
    columns: tuple[str, str],
) -> None:
    assert [row[name] for row in found] == [row[name] for row in expected]
    for ours, theirs in zip(found, expected, strict=True):
        scores, others = ([float(row[column]) for column in columns] for row in (ours, theirs))
        assert scores == pytest.approx(others, abs=TOLERANCE), ours
        assert same_label(ours[label], theirs[label], *scores), ours
