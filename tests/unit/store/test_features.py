"""Feature files: both formats in, one out, damage refused, nothing run."""

from __future__ import annotations

import io

import pytest
import torch

from virnucpro.store.features import (
    DamagedFeaturesError,
    Features,
    all_finite,
    encode_features,
    load_features,
)

ROWS = torch.arange(6, dtype=torch.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "rows", [ROWS, ROWS[:0], ROWS.T.contiguous().T, torch.ones(3, 7)[:2], torch.ones(9, 7)[4:6]]
)
def test_bytes_are_those_of_torch_save(rows):
    ids = ["a", "b"][: len(rows)]
    expected = io.BytesIO()
    torch.save(
        {"ids": ids, "data": rows.clone(memory_format=torch.contiguous_format), "schema": 1},
        expected,
    )
    assert encode_features(Features(ids, rows), "merged") == expected.getvalue()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 4999, 9999])
def test_one_value_that_is_not_finite_is_found(value, place):
    data = torch.ones(10_000)
    assert all_finite(data)
    data[place] = value
    assert not all_finite(data.reshape(100, 100))
    data[place - 1] = -value
    assert not all_finite(data.reshape(100, 100))


def test_values_whose_sum_is_too_large_are_finite():
    assert all_finite(torch.full((4, 4), 3e38))
    assert all_finite(torch.zeros(0, 16))


def _rows(*labels: str) -> list[dict[str, object]]:
    return [{"label": i, "mean_representation": ROWS[n].tolist()} for n, i in enumerate(labels)]


def test_formats_of_before(tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"nucleotide": ["a", "b"], "data": _rows("a", "b")}, path)
    assert torch.equal(load_features(path, "nucleotide").data, ROWS)
    torch.save({"proteins": ["a", "b"], "data": [ROWS[0], ROWS[1]]}, path)
    assert torch.equal(load_features(path, "protein").data, ROWS)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"nucleotide": ["a", "b"], "data": _rows("b", "a")}, "another order"),
        ({"nucleotide": ["a", "b"], "data": _rows("a")}, "2 ids but other rows"),
        ({"nucleotide": ["a", "a"], "data": ROWS}, "twice"),
        ({"nucleotide": ["a", "b"], "data": ROWS[0]}, "2 ids but other rows"),
        ({"nucleotide": ["a", "b"], "data": ROWS / 0}, "not finite"),
        ({"nucleotide": ["a", "b"], "data": [ROWS[0], ROWS[1, :2]]}, "one width"),
        ({"nucleotide": [1, 2], "data": ROWS}, "not text"),
        ({"proteins": ["a", "b"], "data": ROWS}, "not a file of nucleotide features"),
        ([1, 2], "not a file of nucleotide features"),
    ],
)
def test_damage_is_refused(tmp_path, document, message):
    torch.save(document, tmp_path / "x.pt")
    with pytest.raises(DamagedFeaturesError, match=message):
        load_features(tmp_path / "x.pt", "nucleotide")
