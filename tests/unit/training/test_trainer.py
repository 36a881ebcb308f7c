"""The training loop: reproducible, resumable at any batch, equal on one process and on two."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from tests.unit.training.loops import in_pieces, plan_of, run, same
from virnucpro.errors import InputError
from virnucpro.store.disk import Disk
from virnucpro.training.classifier.features import find_features
from virnucpro.training.classifier.trainer import ClassifierLoop, TrainingSettings
from virnucpro.training.group import TrainingGroup
from virnucpro.training.loop import EpochPlan, TrainingLoop
from virnucpro.training.savepoint import Savepoint, load_savepoint, save_savepoint

SMALL = TrainingSettings(hidden=16, epochs=3, batch_size=4)


@pytest.fixture(scope="session")
def parts(embedded):
    return find_features(embedded, "train"), find_features(embedded, "validation")


@pytest.fixture
def plan(parts, tmp_path):
    def _plan(settings, name="training.pt"):
        return plan_of(ClassifierLoop, tmp_path / name, settings, *parts)

    return _plan


def test_stopped_anywhere_and_gone_on_with(plan):
    """Every time it asks for the third time whether to stop, it is stopped, as by a signal."""
    whole, pieces = plan(SMALL, "whole"), plan(SMALL, "pieces")
    run(whole)
    assert in_pieces(pieces)
    expected, found = load_savepoint(whole.savepoint), load_savepoint(pieces.savepoint)
    same(expected.network, found.network)
    same(expected.best, found.best)
    assert {row["rate"] for row in expected.history} == {SMALL.learning_rate}
    times = {"seconds": 0}
    assert [r | times for r in found.history] == [r | times for r in expected.history]


class OneEach(TrainingLoop):
    """Four batches, each with a loss of 1."""

    def epoch_plan(self, epoch, finished_batches):
        return EpochPlan([1] * 4, 1.0, iter(range(finished_batches, 4)))

    def rate(self, epochs):
        return 0.1

    def step(self, number, content):
        return torch.ones(())


def test_the_loss_before_a_stop_counts_once_for_all_processes(tmp_path):
    for rank, loss in ((0, 2 + 5), (1, 2)):
        save_savepoint(tmp_path / "point", Savepoint({}, batch=2, loss=5.0), Disk())
        network, group = torch.nn.Linear(1, 1), TrainingGroup(rank, 1, torch.device("cpu"))
        optimizer = torch.optim.SGD(network.parameters())
        loop = OneEach(tmp_path / "point", network, optimizer, (1, 1), group)
        assert loop.train(lambda event: None, lambda: False)
        assert loop.savepoint.history[0]["loss"] == loss


def test_early_stopping_keeps_the_best(plan):
    """A rate far too high: the loss soon rises, and the weights before that are kept."""
    settings = dataclasses.replace(SMALL, learning_rate=0.5, epochs=60, patience=2)
    made = plan(settings)
    finished, epochs = run(made)
    assert finished
    point = load_savepoint(made.savepoint)
    assert point.finished
    losses = [event.row["validation_loss"] for event in epochs]
    best = int(np.argmin(losses)) + 1
    assert point.best_epoch == best == epochs[-1].best
    assert len(epochs) == min(best + 2, 60) < 60
    again = plan(dataclasses.replace(settings, epochs=best), "again")
    run(again)
    same(load_savepoint(again.savepoint).network, point.best)


def test_bf16_is_near(plan):
    exact, rough = plan(SMALL, "exact"), plan(dataclasses.replace(SMALL, precision="bf16"), "rough")
    first, second = run(exact)[1][-1].row, run(rough)[1][-1].row
    assert first["validation_loss"] != second["validation_loss"]
    assert first["validation_loss"] == pytest.approx(second["validation_loss"], rel=0.1)


def test_a_loss_that_is_not_finite_ends_it(plan):
    made = plan(dataclasses.replace(SMALL, learning_rate=1e30))
    with pytest.raises(InputError, match="smaller learning rate"):
        run(made)
