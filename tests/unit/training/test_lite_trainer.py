"""Training a lite model: reproducible, resumable, and measured as ``predict`` computes."""

from __future__ import annotations

import copy
import io
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.training_data import genome
from tests.unit.encoders.small import open_path, quiet
from virnucpro.classifier.files import classifier_to_bytes, load_classifier
from virnucpro.encoders.lite import lite_to_bytes
from virnucpro.encoders.lite_network import LiteNetwork, LiteShape
from virnucpro.encoders.weights import read_pickle
from virnucpro.errors import ModelError
from virnucpro.training.data.dataset import LabelledRecord
from virnucpro.training.lite import trainer as trainer_module
from virnucpro.training.lite.genomes import genome_set
from virnucpro.training.lite.trainer import LiteTrainer, LiteTrainingSettings, window_margins

SHAPE = LiteShape(word_width=4, channels=(8, 8), heads=2, dim=8)
SETTINGS = LiteTrainingSettings(steps=6, shape=SHAPE, hidden=8)
LENGTHS = (300, 150)


@pytest.fixture(scope="module")
def genomes():
    return genome_set(
        LabelledRecord(f"{label} {n}", f"{label} {n}", f"{label} {n}", label, label,
                       genome(label, 400, n))
        for label in ("virus", "others")
        for n in range(4)
    )  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread_and_small_batches(monkeypatch):
    monkeypatch.setattr(trainer_module, "BATCH_BASES", 6000)
    monkeypatch.setattr(trainer_module, "REWEIGHED", 2)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(trainer, until):
    while trainer.step < until:
        trainer.advance()
    return trainer


def bytes_of(trainer):
    model = trainer.finish()
    return (
        lite_to_bytes(model.encoder, {}),
        classifier_to_bytes(model.classifier_state(), encoders=(), chunk_lengths=(), extra={}),
    )


def test_stopped_and_continued_is_undisturbed(genomes, tmp_path):
    """Through a file, as a savepoint; the random numbers of others in between do not matter."""
    whole = bytes_of(run(LiteTrainer(SETTINGS, genomes, LENGTHS), 6))
    first = run(LiteTrainer(SETTINGS, genomes, LENGTHS), 3)
    path = tmp_path / "state.pt"
    buffer = io.BytesIO()
    torch.save(first.state(), buffer)
    path.write_bytes(buffer.getvalue())
    run(first, 5)  # what it does later is not in the state
    torch.manual_seed(99)
    second = LiteTrainer(SETTINGS, genomes, LENGTHS)
    torch.rand(7)
    second.load_state(read_pickle(path))
    assert second.step == 3
    assert bytes_of(run(second, 6)) == whole
    other = LiteTrainer(replace(SETTINGS, seed=1), genomes, LENGTHS)
    assert bytes_of(run(other, 6))[0] != whole[0]


def test_a_training_can_start_from_an_earlier_encoder(genomes):
    start = run(LiteTrainer(SETTINGS, genomes, LENGTHS), 3).finish().encoder
    begun = LiteTrainer(replace(SETTINGS, seed=1), genomes, LENGTHS, start).finish().encoder
    bases = torch.from_numpy(genomes.windows(np.arange(8), np.arange(8), 300)).long()
    assert torch.equal(begun(bases), start(bases))


def test_an_encoder_of_other_sizes_is_no_start(genomes):
    start = LiteNetwork(replace(SHAPE, dim=16))
    with pytest.raises(ModelError, match="encoder to start from has other sizes"):
        LiteTrainer(SETTINGS, genomes, LENGTHS, start)


def test_the_windows_of_a_batch_have_one_length_and_half_are_virus(genomes):
    drawn, trainer = [], LiteTrainer(SETTINGS, genomes, LENGTHS)
    for _ in range(60):
        windows, records = trainer._draw()
        assert len(windows) == len(records) == 2 * genomes.virus[records].sum()
        assert 6000 - 2 * windows.shape[1] < windows.size <= 6000
        drawn.append(windows.shape[1])
    for length in LENGTHS:  # some are whole, some shortened, by less than a third
        assert drawn.count(length) > 10
        assert any(0.7 * length - 1 <= short < length for short in drawn)
    assert min(drawn) >= 0.7 * min(LENGTHS) - 1


def test_the_norms_use_running_means_of_all_lengths_at_the_end(genomes):
    trainer = LiteTrainer(replace(SETTINGS, steps=40), genomes, LENGTHS)
    norms = [m for m in trainer._model.modules() if isinstance(m, trainer_module.BatchNorm)]
    assert len(norms) == 9  # of tables, convolutions, pooled, embedding and hidden units

    def statistics():
        return torch.cat([torch.cat([m.running_mean, m.running_var]) for m in norms])

    run(trainer, 27)
    before = statistics()
    run(trainer, 28)
    assert not torch.equal(statistics(), before)  # as the last batch has changed them
    average = [
        m for m in trainer._average.module.modules() if isinstance(m, trainer_module.BatchNorm)
    ]
    means = torch.cat([torch.cat([m.running_mean, m.running_var]) for m in average])
    assert not torch.equal(statistics(), means)
    run(trainer, 29)
    settled = statistics()
    assert torch.equal(settled, means)
    saved = copy.deepcopy(trainer.state())
    run(trainer, 40)
    assert torch.equal(statistics(), settled)
    assert all(not norm.training for norm in norms)
    again = LiteTrainer(replace(SETTINGS, steps=40), genomes, LENGTHS)
    again.load_state(saved)
    assert bytes_of(run(again, 40)) == bytes_of(trainer)


def test_a_group_that_is_told_apart_worse_is_drawn_more_often():
    """Half of the viruses are written as the others are."""
    rows = [
        LabelledRecord(f"{group} {n}", f"{group} {n}", f"{group} {n}", group, label,
                       genome(letters, 400, n))
        for group, label, letters in (
            ("clear", "virus", "virus"), ("hidden", "virus", "others"), ("host", "others", "others")
        )
        for n in range(4)
    ]  # fmt: skip
    trainer = run(LiteTrainer(replace(SETTINGS, steps=60), genome_set(rows), LENGTHS), 60)
    losses = dict(zip(("clear", "hidden", "host"), trainer.state()["group_losses"], strict=True))
    factors = dict(zip(("clear", "hidden", "host"), trainer.state()["factors"], strict=True))
    assert losses["hidden"] > losses["clear"]
    assert factors["hidden"] > max(1, factors["clear"], factors["host"])


def test_it_learns_what_differs(genomes):
    trainer = run(LiteTrainer(replace(SETTINGS, steps=150), genomes, LENGTHS), 150)
    assert np.mean(trainer.losses[-5:]) < 0.8 * np.mean(trainer.losses[:2])
    records = np.arange(8)
    margins = window_margins(trainer.finish(), genomes, records, records * 10, 300)
    assert margins[genomes.virus].min() > margins[~genomes.virus].max()


def test_margins_are_those_of_predict(genomes, tmp_path):
    """The encoder from its file, then the classifier from its own, chunk by chunk."""
    trainer = run(LiteTrainer(SETTINGS, genomes, LENGTHS), 2)
    for name, data in zip(("encoder", "classifier"), bytes_of(trainer), strict=True):
        (tmp_path / f"{name}.safetensors").write_bytes(data)
    records, offsets = np.arange(8), np.arange(8) * 7
    margins = window_margins(trainer.finish(), genomes, records, offsets, 150)
    texts = ["".join("ACGT"[n] for n in row) for row in genomes.windows(records, offsets, 150)]
    rows = open_path(tmp_path / "encoder.safetensors", "nucleotide").encode(texts, quiet)
    scores = load_classifier(tmp_path / "classifier.safetensors").scores(rows)
    logits = torch.logit(scores[:, 1].double()).numpy()
    assert np.allclose(margins, logits, atol=5e-3)  # matrices are stored in 16 bits


@pytest.mark.parametrize("steps", [1, 5, 30, 30_000])
def test_the_learning_rate_rises_and_falls(steps):
    rates = [
        LiteTrainingSettings(steps=steps, learning_rate=1.0).rate(step) for step in range(steps)
    ]
    assert min(rates) > 0
    assert max(rates) <= 1.001
    top = rates.index(max(rates))
    assert top <= max(steps // 10, 0)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
