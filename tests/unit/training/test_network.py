"""The network in training against torch's own layers."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from virnucpro.training.classifier.trainer import ClassifierNetwork, TrainingSettings, dropout_mask

SMALL = TrainingSettings(hidden=8)


def test_first_weights_come_from_the_seed():
    one, two = ClassifierNetwork(6, SMALL), ClassifierNetwork(6, SMALL)
    other = ClassifierNetwork(6, dataclasses.replace(SMALL, seed=1))
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
    network = ClassifierNetwork(6, SMALL).train()
    x = torch.randn(2000, 6)
    kept = network(x, torch.ones(2000, 8, dtype=torch.bool))
    none = network(x, torch.zeros(2000, 8, dtype=torch.bool))
    assert torch.allclose(none, network.output_layer.bias.expand(2000, 2))
    normal = F.batch_norm(network.hidden_layer(x), None, None, training=True)
    assert torch.allclose(kept, network.output_layer(F.relu(normal) * 2), atol=1e-5)
    own, norm = type(network.bn1)(6), torch.nn.BatchNorm1d(6)
    assert torch.allclose(own(x[:4, :, None], torch.ones(4, 1, 1))[..., 0], norm(x[:4]), atol=1e-5)
    assert torch.allclose(own.running_var, norm.running_var)
