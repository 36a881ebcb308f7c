"""The figures of a report: dots that cover each other, and labels of logarithmic axes."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from virnucpro.report.figures import _DOTS_AT_A_PLACE, _not_covered, _write_plain_numbers


def test_of_dots_at_one_place_the_first_few_are_drawn() -> None:
    lengths = np.array([150] * 100 + [150, 300])
    scores = np.array([0.5] * 100 + [-0.5, 0.5])
    expected = [*range(_DOTS_AT_A_PLACE), 100, 101]
    assert _not_covered(lengths, scores).tolist() == expected


def test_dots_at_different_places_are_all_drawn() -> None:
    scores = np.linspace(-1, 1, 300)
    assert len(_not_covered(np.full(300, 150), scores)) == 300
    assert len(_not_covered(np.empty(0, np.int64), np.empty(0))) == 0


def test_a_logarithmic_axis_has_plain_numbers() -> None:
    axes = Figure().subplots()
    axes.plot([1, 10_000], [1, 1])
    axes.set_xscale("log")
    _write_plain_numbers(axes.xaxis)
    labels = {label.get_text() for label in axes.get_xticklabels(which="both")}
    assert {"1", "100", "10,000"} <= labels
    assert not any("$" in label for label in labels)
