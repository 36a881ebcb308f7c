"""The training of networks: its loss, resuming, several processes, and precisions."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch

from tests.unit.rcl.made_proteins import proteins
from tests.unit.training.loops import CPU, plan_of, run, same
from virnucpro.rcl.features import RESIDUE_ENCODINGS
from virnucpro.rcl.settings import training_settings
from virnucpro.rcl.training import IGNORED, RclLoop, epoch_batches
from virnucpro.training.loop import load_savepoint

NETWORKS = {
    "cnn": {"channels": [8], "kernel_sizes": [5], "dropout": 0.0},
    "unet": {"base_filters": 4, "depth": 2, "dropout": 0.2, "attention": True},
    "lstm": {"hidden_dim": 8, "num_layers": 1, "dropout": 0.2},
}


def made(networks=NETWORKS, precision="fp32", **fit):
    options = {"max_length": 128, "batch_size": 6, "epochs": 2, "lr": 0.01, **networks, **fit}
    return training_settings(None, {"precision": precision, **options})[0]


SETTINGS = made()
TRAIN, VALIDATION = proteins(24), proteins(6, first=100)


@pytest.fixture
def averaged(monkeypatch):
    """A tenth of so few steps would be less than one."""
    monkeypatch.setattr("virnucpro.rcl.training.SHARE_AVERAGED", 0.5)


@pytest.fixture
def plan(tmp_path):
    def _plan(settings, name="training.pt"):
        path, features = tmp_path / name, RESIDUE_ENCODINGS["onehot"]
        return plan_of(RclLoop, path, settings, TRAIN, VALIDATION, features)

    return _plan


def test_it_learns(plan):
    started = plan(made(epochs=8, patience=8))
    epochs = run(started)
    assert epochs[-1].row["f1"] > 0.8
    assert epochs[-1].row["auc"] > 0.99
    point = load_savepoint(started.savepoint)
    assert point.best_epoch == max(range(8), key=lambda n: point.history[n]["f1"]) + 1


def test_the_loss_is_that_of_the_original(plan):
    loop = plan(SETTINGS).loop(CPU)
    logits = torch.randn(3, 10, 2)
    labels = torch.randint(0, 2, (3, 10))
    labels[1, 6:] = labels[2, 2:] = IGNORED
    expected = 0.0
    for row, label in zip(logits.flatten(0, 1), labels.flatten(), strict=True):
        if label != IGNORED:
            expected -= [1, 5][label] * torch.log(torch.softmax(row, 0)[label] + 1e-8).item()
    assert loop._loss_sum(logits, labels).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("settings", [SETTINGS, made(averaged=0)], ids=["mean", "last"])
def test_stopped_and_gone_on_with(plan, settings, averaged):
    whole, pieces = plan(settings, "whole"), plan(settings, "pieces")
    run(whole)
    run(pieces, epochs=1)
    assert not load_savepoint(pieces.savepoint).finished
    run(pieces)
    one, two = load_savepoint(whole.savepoint), load_savepoint(pieces.savepoint)
    same(one.network, two.network)
    same(one.best, two.best)
    same(one.last_network(), two.last_network())
    assert [row["loss"] for row in one.history] == [row["loss"] for row in two.history]
    if settings is not SETTINGS:  # the weights of the last step are kept
        assert one.extra == {}
        same(one.last_network(), one.network)


def test_two_processes_equal_one(plan):
    """After some steps without dropout; the sums are added in another order, nothing else.

    In four epochs of four steps, the mean reaches back over more than one.
    """
    networks = {**NETWORKS, "unet": {**NETWORKS["unet"], "dropout": 0.0}}
    settings = made(networks=networks, epochs=4, lr=1e-5)
    single, double = plan(settings, "single"), plan(settings, "double")
    run(single)
    run(double, epochs=1)
    run(double, processes=2)  # they go on with what one has begun
    one, two = load_savepoint(single.savepoint), load_savepoint(double.savepoint)
    same(one.network, two.network, atol=1e-5)
    same(one.last_network(), two.last_network(), atol=1e-5)
    assert not torch.equal(one.network["input_proj.weight"], one.best["input_proj.weight"])
    for name, error in (("loss", 1e-5), ("auc", 1e-4), ("validation_loss", 1e-5)):
        assert one.history[0][name] == pytest.approx(two.history[0][name], abs=error)


@pytest.mark.parametrize("model", NETWORKS)
def test_batches_of_few_widths_give_the_same_losses(plan, monkeypatch, model):
    """A GPU gets such batches, because each new shape costs it time."""
    networks = {name: {**values, "dropout": 0.0} for name, values in NETWORKS.items()}
    settings = msgspec.structs.replace(made(networks=networks, lr=1e-5), model=model)
    close, wide = plan(settings, "close"), plan(settings, "wide")
    run(close)
    monkeypatch.setattr("virnucpro.rcl.training.PADDED_TO", {"cpu": 96})
    assert {x.shape[1] for x, *_ in wide.loop(CPU).batches(0)[1]} <= {96, 192}
    run(wide)
    one, two = load_savepoint(close.savepoint), load_savepoint(wide.savepoint)
    for name in ("loss", "validation_loss", "auc", "f1"):
        expected = [row[name] for row in one.history]
        assert [row[name] for row in two.history] == pytest.approx(expected, abs=1e-5)


def test_mixed_precision_is_near(plan):
    exact, rough = plan(made(epochs=1), "exact"), plan(made(epochs=1, precision="bf16"), "rough")
    first, second = run(exact)[-1], run(rough)[-1]
    assert first.row["loss"] != second.row["loss"]
    assert first.row["loss"] == pytest.approx(second.row["loss"], rel=0.1)


def test_the_mean_of_the_weights_is_kept(plan, averaged):
    """It is what is validated and written, and not the weights of the last step."""
    training = plan(SETTINGS)
    run(training)
    point = load_savepoint(training.savepoint)
    mean = point.last_network()
    assert not torch.equal(mean["input_proj.weight"], point.network["input_proj.weight"])
    loop = training.loop(CPU)
    same(loop.result().state_dict(), mean)
    kept = loop.validate()
    assert kept == {name: point.history[1][name] for name in kept}


def test_batches():
    lengths = np.random.default_rng(0).integers(50, 900, 499)
    batches = epoch_batches(lengths, 8, 42, 0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(499))
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert padded < 1.1 * lengths.sum()
    assert min(map(len, batches)) >= 4
    other = epoch_batches(lengths, 8, 42, 1)
    assert [b.tolist() for b in batches] != [b.tolist() for b in other]


def test_rates(plan):
    loop = plan(made(scheduler="reduce_on_plateau", patience=5, lr=1.0)).loop(CPU)
    rates = [loop.rate(0)]
    for value in (0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6):
        loop.savepoint.history.append({"f1": value})
        rates.append(loop.rate(0))
    assert rates == [1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5]
    loop = plan(made(scheduler="cosine", epochs=20, lr=1.0), "other").loop(CPU)
    assert [loop.rate(n) for n in (0, 1, 20)] == pytest.approx([0.02, 1.0, 0], abs=1e-12)
