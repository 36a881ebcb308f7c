"""The script that compares stated and realised false discovery rates in known mixtures."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[3] / "examples/lite/mixtures.py"


@pytest.fixture(scope="module")
def mixtures() -> ModuleType:
    specification = importlib.util.spec_from_file_location("mixtures", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _scores(sharpness: float) -> list[tuple[bool, str, list[float]]]:
    """Records of one chunk whose log odds are exact for as much virus as others, if sharpness is 1."""
    rng = np.random.default_rng(1)
    virus = np.arange(12_000) % 2 == 0
    odds = 9 * (virus - 0.5) + 3 * rng.normal(size=len(virus))
    found = 1 / (1 + np.exp(-sharpness * odds))
    return [
        (bool(v), f"g{n % 3}", [float(p)])
        for n, (v, p) in enumerate(zip(virus, found, strict=True))
    ]


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_exact_probabilities_give_the_stated_rates(mixtures: ModuleType, share: float) -> None:
    sample = mixtures.draw(_scores(1.0), share, 5000, np.random.default_rng(2))
    assert np.mean([virus for virus, _, _ in sample]) == share
    rows = dict(zip(mixtures.STATED, mixtures.measure(sample), strict=True))
    assert rows[0.05][2] == pytest.approx(0.05, abs=0.025)
    assert rows[0.2][2] == pytest.approx(0.2, abs=0.05)
    assert rows[0.01][0] < rows[0.05][0] < rows[0.2][0]


def test_too_sure_probabilities_show_in_the_table(mixtures: ModuleType) -> None:
    sample = mixtures.draw(_scores(4.0), 0.1, 5000, np.random.default_rng(2))
    rows = dict(zip(mixtures.STATED, mixtures.measure(sample), strict=True))
    assert rows[0.01][2] > 0.03


def test_groups_are_drawn_alike(mixtures: ModuleType) -> None:
    scores = [(False, "a", [0.1])] * 100 + [(False, "b", [0.1])] * 10 + [(True, "v", [0.9])] * 20
    sample = mixtures.draw(scores, 0.5, 40, np.random.default_rng(1))
    groups = [group for _, group, _ in sample]
    assert (groups.count("v"), groups.count("a"), groups.count("b")) == (20, 10, 10)
    with pytest.raises(SystemExit, match="too few records"):
        mixtures.draw(scores, 0.5, 60, np.random.default_rng(1))
