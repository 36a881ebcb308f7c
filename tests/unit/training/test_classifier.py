"""The network of a classifier and its training; ``tests/cli`` has whole trainings."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from tests.unit.training.loops import CPU, plan_of, run
from virnucpro.errors import InputError
from virnucpro.training.classifier import (
    ClassifierLoop,
    ClassifierNetwork,
    TrainingSettings,
    dropout_mask,
)
from virnucpro.training.features import find_features

SMALL = TrainingSettings(hidden=16, epochs=3, batch_size=4)


@pytest.fixture(scope="session")
def parts(embedded):
    return find_features(embedded, "train"), find_features(embedded, "validation")


@pytest.fixture
def plan(parts, tmp_path):
    def _plan(settings, name="training.pt"):
        return plan_of(ClassifierLoop, tmp_path / name, settings, *parts)

    return _plan


def test_the_rate_falls_every_ten_epochs(plan):
    rate = plan(SMALL).loop(CPU).rate
    found = [rate(epochs) / SMALL.learning_rate for epochs in (0, 9.9, 10, 25)]
    assert found == pytest.approx([1, 1, 0.85, 0.85**2])


def test_bf16_is_near(plan):
    exact, rough = plan(SMALL, "exact"), plan(dataclasses.replace(SMALL, precision="bf16"), "rough")
    first, second = run(exact)[-1].row, run(rough)[-1].row
    assert 0.5 < first["auroc"] <= 1
    assert first["validation_loss"] != second["validation_loss"]
    assert first["validation_loss"] == pytest.approx(second["validation_loss"], rel=0.1)


def test_a_loss_that_is_not_finite_ends_it(plan):
    made = plan(dataclasses.replace(SMALL, learning_rate=1e30))
    with pytest.raises(InputError, match="smaller learning rate"):
        run(made)


FEW = TrainingSettings(hidden=8)


def test_first_weights_come_from_the_seed():
    one, two = ClassifierNetwork(6, FEW), ClassifierNetwork(6, FEW)
    other = ClassifierNetwork(6, dataclasses.replace(FEW, seed=1))
    for key, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[key])
    assert not torch.equal(one.hidden_layer.weight, other.hidden_layer.weight)
    bound = (6 / (6 + 8)) ** 0.5  # Xavier, as the original
    assert one.hidden_layer.weight.abs().max() <= bound


def test_dropout():
    mask = dropout_mask(2000, FEW, epoch=1, batch=2)
    assert mask.float().mean().item() == pytest.approx(0.5, abs=0.02)
    assert torch.equal(mask, dropout_mask(2000, FEW, epoch=1, batch=2))
    assert not torch.equal(mask, dropout_mask(2000, FEW, epoch=1, batch=3))
    network = ClassifierNetwork(6, FEW).train()
    x = torch.randn(2000, 6)
    kept = network(x, torch.ones(2000, 8, dtype=torch.bool))
    none = network(x, torch.zeros(2000, 8, dtype=torch.bool))
    assert torch.allclose(none, network.output_layer.bias.expand(2000, 2))
    normal = F.batch_norm(network.hidden_layer(x), None, None, training=True)
    assert torch.allclose(kept, network.output_layer(F.relu(normal) * 2), atol=1e-5)
