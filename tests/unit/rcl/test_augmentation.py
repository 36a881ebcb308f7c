"""Made-up relatives of serpins."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.unit.rcl.test_profile import END, SERPIN, START, changed
from virnucpro.errors import UsageError
from virnucpro.rcl.augmentation import Relatives, make_relatives
from virnucpro.rcl.encodings import AMINO_ACIDS
from virnucpro.rcl.features import TableFeatures
from virnucpro.rcl.proteins import AnnotatedProtein
from virnucpro.rcl.settings import RCL_RECIPES, check_settings
from virnucpro.rcl.training import RclTrainingPlan
from virnucpro.store.disk import Disk
from virnucpro.training.group import TrainingGroup
from virnucpro.training.loop import train_network
from virnucpro.training.savepoint import Savepoint, load_savepoint, save_savepoint

pytest.importorskip("pyhmmer")

# The second one is longer in front, the third one has unknown residues and small letters.
SERPINS = [
    *(AnnotatedProtein(f"S{n}", changed(SERPIN, 0.3, n), START, END) for n in range(4)),
    AnnotatedProtein("long", "M" * 30 + changed(SERPIN, 0.3, 9), START + 30, END + 30),
    AnnotatedProtein("odd", "xx" + SERPIN[2:200].lower() + SERPIN[200:], START, END),
]
OTHER = AnnotatedProtein("O", changed("M" * 300, 1, 3))
PROTEINS = [OTHER, *SERPINS]
LOOP = SERPIN[START - 1 : END]


@pytest.fixture(scope="module")
def relatives() -> Relatives:
    return make_relatives(PROTEINS)


def similarity(one: str, other: str) -> float:
    return sum(a == b for a, b in zip(one, other, strict=False)) / max(len(one), len(other))


def test_relatives_differ_and_keep_their_loop(relatives: Relatives) -> None:
    random = np.random.default_rng(0)
    made = [relatives.of(1 + n % 6, SERPINS[n % 6], random) for n in range(300)]
    assert len({protein.sequence for protein in made}) > 200
    assert all(set(protein.sequence) <= set(AMINO_ACIDS + "X") for protein in made)
    loops = [protein.sequence[protein.start - 1 : protein.end] for protein in made]
    assert abs(np.median([len(loop) for loop in loops]) - len(LOOP)) <= 1
    # A loop that is somewhere else would share a twentieth of the residues.
    assert np.median([similarity(loop, LOOP) for loop in loops]) > 0.4
    shares = [similarity(protein.sequence, SERPIN) for protein in made]
    assert min(shares) < 0.3
    assert max(shares) > 0.7


def test_other_proteins_keep_their_length(relatives: Relatives) -> None:
    random = np.random.default_rng(0)
    made = [relatives.of(0, OTHER, random) for _ in range(100)]
    assert {(len(protein.sequence), protein.has_rcl) for protein in made} == {(300, False)}
    assert 10 < sum(protein.sequence != OTHER.sequence for protein in made) < 60


def test_the_same_proteins_have_the_same_relatives(relatives: Relatives) -> None:
    again = pickle.loads(pickle.dumps(make_relatives(PROTEINS)))  # noqa: S301
    for number, protein in enumerate(PROTEINS):
        one, two = (
            made.of(number, protein, np.random.default_rng(5)) for made in (relatives, again)
        )
        assert one == two


def test_what_has_no_relatives() -> None:
    with pytest.raises(UsageError, match="a profile needs two serpins"):
        make_relatives([OTHER, AnnotatedProtein("short", "MKLVAAGT", 2, 5)])
    settings = replace(RCL_RECIPES["modern"], relatives=True, encoding="esm2_650m")
    with pytest.raises(UsageError, match="--relatives needs --encoding onehot or blosum"):
        check_settings(settings, 1)


def test_a_relative_is_not_longer_than_proteins_may_be(relatives: Relatives) -> None:
    longest = max(len(protein.sequence) for protein in PROTEINS)
    settings = replace(RCL_RECIPES["modern"], relatives=True, max_length=longest, fragments=0.0)
    features = TableFeatures("onehot")
    plan = RclTrainingPlan(settings, PROTEINS, PROTEINS, features, Path("unused"), relatives)
    random = np.random.default_rng(0)
    made = [plan.seen_in_training(np.array([5]), random)[0] for _ in range(60)]
    assert max(len(protein.sequence) for protein in made) == longest
    assert any(protein.sequence != PROTEINS[5].sequence for protein in made)


def test_a_training_sees_relatives(relatives: Relatives, tmp_path: Path) -> None:
    """And with the same seed the same ones."""
    networks = {"cnn": {"channels": [4], "kernel_sizes": [3], "dropout": 0.0}}
    settings = replace(
        RCL_RECIPES["modern"], networks=networks, model="cnn", epochs=1, batch_size=3
    )
    group = TrainingGroup(0, 1, torch.device("cpu"))
    losses = []
    for made in (None, relatives, relatives):
        path = tmp_path / "training.pt"
        save_savepoint(path, Savepoint({}), Disk())
        plan = RclTrainingPlan(settings, PROTEINS, PROTEINS, TableFeatures("onehot"), path, made)
        assert train_network(plan, group, lambda event: None, lambda: False)
        point = load_savepoint(path)
        assert point is not None
        losses.append(point.history[0]["loss"])
    assert losses[0] != losses[1] == losses[2]
