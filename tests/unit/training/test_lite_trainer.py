"""Training a lite model: reproducible, resumable, and measured as ``predict`` computes."""

from __future__ import annotations

import runpy
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import train as trainer_module
from train import LiteLoop, LiteModel, LiteTrainingSettings, window_rows
from windows import genome_set

from tests.training_data import genome
from tests.unit.encoders.small import open_path, quiet
from tests.unit.training.loops import CPU, Stopped, plan_of
from virnucpro.classifier.files import classifier_to_bytes, inspect_classifier
from virnucpro.encoders.lite import LiteShape, lite_to_bytes
from virnucpro.errors import InputError
from virnucpro.events import StepAdvanced
from virnucpro.training.data.dataset import LabelledRecord
from virnucpro.training.loop import load_savepoint

SHAPE = LiteShape(word_width=4, channels=(8, 8), heads=2, dim=8)
SETTINGS = LiteTrainingSettings(steps=6, shape=SHAPE, hidden=8)
LENGTHS = (300, 150)
JOIN = Path(__file__).parents[3] / "examples/lite/join.py"


def genomes_of(*groups):
    """Four genomes of each group, which is written with the letters of a label."""
    names = [(f"{group} {n}", group, label, letters, n) for group, label, letters in groups
             for n in range(4)]  # fmt: skip
    return genome_set(
        LabelledRecord(name, name, name, group, label, genome(letters, 400, n))
        for name, group, label, letters, n in names
    )


@pytest.fixture(scope="module")
def genomes():
    return genomes_of(*((label, label, label) for label in ("virus", "others")))


@pytest.fixture(autouse=True)
def one_thread_and_small_batches(monkeypatch):
    monkeypatch.setattr(trainer_module, "BATCH_BASES", 6000)
    monkeypatch.setattr(trainer_module, "REWEIGHED", 2)
    monkeypatch.setattr(trainer_module, "SAVED_STEPS", 7)
    monkeypatch.setattr("virnucpro.training.loop.REPORT_SECONDS", 0.0)
    torch.set_num_threads(1)


@pytest.fixture
def plan(genomes, tmp_path):
    def _plan(settings=SETTINGS, name="lite.pt", start=None, genomes=genomes):
        return plan_of(LiteLoop, tmp_path / name, settings, genomes, LENGTHS, start)

    return _plan


def loop_of(plan):
    return plan.loop(CPU)


def trained(plan, until=10**9):
    """The loop after step ``until``, begun at the savepoint."""
    loop = loop_of(plan)
    seen = loop.savepoint.epoch * trainer_module.SAVED_STEPS

    def report(event):
        nonlocal seen
        seen += event.amount if isinstance(event, StepAdvanced) else 0
        if seen == until:
            raise Stopped

    with suppress(Stopped):
        loop.train(report)
    return loop


def finished(loop):
    model = LiteModel(loop._settings)
    model.load_state_dict(loop.average.module.state_dict())
    return model.eval()


def bytes_of(loop):
    model = finished(loop)
    own = {k: v for k, v in model.state_dict().items() if not k.startswith("encoder.")}
    head = classifier_to_bytes(own, encoders=(), chunk_lengths=(), extra={})
    return lite_to_bytes(model.encoder, {}), head


def test_a_training_can_start_from_an_earlier_model(plan, genomes):
    """Its batch norms stay as they are, and its learning rate does not fall."""
    start = finished(trained(plan()))
    begun = loop_of(plan(replace(SETTINGS, seed=1), "more", start))
    bases = torch.from_numpy(genomes.windows(np.arange(8), np.arange(8), 300)).long()
    assert torch.equal(finished(begun)(bases), start(bases))
    again = trained(plan(replace(SETTINGS, seed=1), "again", start))
    assert again.optimizer.param_groups[0]["lr"] == pytest.approx(SETTINGS.learning_rate, 2e-3)
    before, after = start.state_dict(), finished(again).state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert not any("running" in name for name in changed)


def test_joined_encoders_compute_what_each_of_them_does(plan, genomes):
    apart = [finished(trained(plan(replace(SETTINGS, seed=n), f"{n}"))).encoder for n in (1, 2)]
    bases = torch.from_numpy(genomes.windows(np.arange(8), np.arange(8), 300)).long()
    joined = runpy.run_path(str(JOIN))["joined"](apart)
    both = torch.cat([encoder(bases) for encoder in apart], dim=1)
    torch.testing.assert_close(joined(bases), both)


def test_averaged_encoders_have_the_mean_of_each_weight(plan):
    encoders = [finished(trained(plan(replace(SETTINGS, seed=n), f"{n}"))).encoder for n in (1, 2)]
    first, second = (encoder.state_dict() for encoder in encoders)
    means = runpy.run_path(str(JOIN))["average"]([first, second, second])
    for name, value in means.items():
        assert value.dtype == first[name].dtype
        mean = (first[name] + 2 * second[name]) / 3
        torch.testing.assert_close(value, mean.to(value.dtype))


def test_the_norms_use_running_means_of_all_lengths_at_the_end(plan):
    pieces = plan(replace(SETTINGS, steps=40))

    def norms(module):
        return [m for m in module.modules() if isinstance(m, trainer_module.BatchNorm)]

    def statistics(module):
        return torch.cat([torch.cat([m.running_mean, m.running_var]) for m in norms(module)])

    loops = {until: trained(pieces, until) for until in (27, 28, 29, 40)}
    assert len(norms(loops[27].network)) == 9  # of tables, convolutions, embedding and so on
    found = {until: statistics(loop.network) for until, loop in loops.items()}
    assert not torch.equal(found[28], found[27])  # as the last batch has changed them
    means = statistics(loops[28].average)
    assert not torch.equal(found[28], means)
    assert torch.equal(found[29], means)
    assert torch.equal(found[40], means)
    assert all(not norm.training for norm in norms(loops[40].network))
    assert bytes_of(trained(plan(replace(SETTINGS, steps=40), "whole"))) == bytes_of(loops[40])


def test_a_group_that_is_told_apart_worse_is_drawn_more_often(plan):
    """Half of the viruses are written as the others are."""
    names = ("clear", "hidden", "host")
    rows = zip(names, ("virus", "virus", "others"), ("virus", "others", "others"), strict=True)
    genomes = genomes_of(*rows)
    made = plan(replace(SETTINGS, steps=60), genomes=genomes)
    trained(made)
    extra = load_savepoint(made.savepoint).extra
    losses, factors = (
        dict(zip(names, extra[name], strict=True)) for name in ("group_losses", "factors")
    )
    assert losses["hidden"] > losses["clear"]
    assert factors["hidden"] > max(1, factors["clear"], factors["host"])
    more = plan(replace(SETTINGS, more_of=("clear",)), genomes=genomes)
    records, _ = loop_of(more)._samplers[0][1].draw(4000, 300, np.random.default_rng(0))
    shares = np.bincount(genomes.groups[records], minlength=3) / 4000
    assert shares == pytest.approx([3 / 8, 1 / 8, 1 / 2], abs=0.03)
    with pytest.raises(InputError, match="no group 'missing'"):
        loop_of(plan(replace(SETTINGS, more_of=("missing",))))


def test_margins_are_those_of_predict(plan, genomes, tmp_path):
    """The encoder from its file, then the classifier from its own, chunk by chunk."""
    loop = trained(plan(), 2)
    for name, data in zip(("encoder", "classifier"), bytes_of(loop), strict=True):
        (tmp_path / f"{name}.safetensors").write_bytes(data)
    records, offsets = np.arange(8), np.arange(8) * 7
    others, virus = window_rows(finished(loop), genomes, records, offsets, 150).T
    texts = ["".join("ACGT"[n] for n in row) for row in genomes.windows(records, offsets, 150)]
    rows = open_path(tmp_path / "encoder.safetensors", "nucleotide").encode(texts, quiet)
    scores = inspect_classifier(tmp_path / "classifier.safetensors").model.scores(rows)
    logits = torch.logit(scores[:, 1].double()).numpy()
    assert np.allclose(virus - others, logits, atol=5e-3)  # matrices are stored in 16 bits


def test_the_learning_rate_rises_and_falls(plan):
    loop, rates = loop_of(plan(replace(SETTINGS, steps=30_000, learning_rate=1.0))), []
    for loop._step in (0, 499, 15_000, 29_999):
        rates.append(loop.rate(0))
    assert rates == pytest.approx([0.003, 1.0, 0.501, 0.001], abs=2e-3)
