"""The network in training against torch's own layers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.unit.training.loops import ALONE
from virnucpro.classifier.files import Classifier
from virnucpro.training.classifier.trainer import (
    EPS,
    RECIPES,
    ClassifierNetwork,
    GlobalBatchNorm,
    dropout_mask,
    fold_standardisation,
)

SMALL = dataclasses.replace(RECIPES["original"], hidden=8)


def test_batch_norm_is_torchs():
    ours, theirs = GlobalBatchNorm(5, ALONE), nn.BatchNorm1d(5)
    for step in range(3):
        x = torch.randn(16, 5, generator=torch.Generator().manual_seed(step)) * 3 + 1
        first, second = x.clone().requires_grad_(), x.clone().requires_grad_()
        (ours(first, 16) ** 3).sum().backward()
        (theirs(second) ** 3).sum().backward()
        assert torch.allclose(first.grad, second.grad, atol=1e-3)
        assert torch.allclose(ours.weight.grad, theirs.weight.grad, rtol=1e-4)
    assert torch.allclose(ours.running_mean, theirs.running_mean, atol=1e-6)
    assert torch.allclose(ours.running_var, theirs.running_var, atol=1e-6)
    assert torch.allclose(ours.eval()(x, 16), theirs.eval()(x), atol=1e-6)


def test_first_weights_come_from_the_seed():
    one, two = ClassifierNetwork(6, SMALL, ALONE), ClassifierNetwork(6, SMALL, ALONE)
    other = ClassifierNetwork(6, dataclasses.replace(SMALL, seed=1), ALONE)
    for key, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[key])
    assert not torch.equal(one.hidden_layer.weight, other.hidden_layer.weight)
    bound = (6 / (6 + 8)) ** 0.5  # Xavier, as the original
    assert one.hidden_layer.weight.abs().max() <= bound


def test_dropout():
    mask = dropout_mask(2000, SMALL, epoch=1, batch=2)
    assert mask.float().mean().item() == pytest.approx(0.5, abs=0.02)
    assert torch.equal(mask, dropout_mask(2000, SMALL, epoch=1, batch=2))
    assert not torch.equal(mask, dropout_mask(2000, SMALL, epoch=1, batch=3))
    network = ClassifierNetwork(6, SMALL, ALONE).train()
    x = torch.randn(2000, 6)
    kept = network(x, torch.ones(2000, 8, dtype=torch.bool), 2000)
    none = network(x, torch.zeros(2000, 8, dtype=torch.bool), 2000)
    assert torch.allclose(none, network.output_layer.bias.expand(2000, 2))
    normal = network.bn1(network.hidden_layer(x), 2000)
    assert torch.allclose(kept, network.output_layer(F.relu(normal) * 2), atol=1e-5)


def test_standardisation_is_folded_into_the_first_layer():
    network = ClassifierNetwork(6, SMALL, ALONE).eval()
    random = np.random.default_rng(1)
    mean, deviation = random.normal(size=6) * 10, random.random(6) + 0.1
    x = torch.randn(50, 6) * 3 + 2
    inputs = (x.double() - torch.from_numpy(mean)) / torch.from_numpy(deviation)
    expected = network(inputs.float(), torch.empty(0), 0)
    found = Classifier(
        fold_standardisation(dict(network.state_dict()), mean, deviation), EPS
    ).scores(x, softmax=False)
    assert torch.allclose(found, expected, atol=1e-4)


def test_rates():
    assert [RECIPES["original"].rate(p) for p in (0, 9.9, 10, 25)] == pytest.approx(
        [2e-4, 2e-4, 2e-4 * 0.85, 2e-4 * 0.85**2]
    )
    assert RECIPES["modern"].rate(0) == 0
    assert RECIPES["modern"].rate(0.5) == pytest.approx(RECIPES["modern"].learning_rate / 2)
    assert RECIPES["modern"].rate(1) == RECIPES["modern"].learning_rate
    assert RECIPES["modern"].rate(RECIPES["modern"].epochs) == pytest.approx(0, abs=1e-12)
    rates = [RECIPES["modern"].rate(p) for p in np.linspace(1, RECIPES["modern"].epochs, 50)]
    assert rates == sorted(rates, reverse=True)
