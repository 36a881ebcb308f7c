"""Training a lite pair: reproducible, resumable, and measured as ``predict`` computes."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch

from tests.unit.encoders.small import open_path, quiet
from tests.unit.training.lite_sets import SMALL, frame_set, frames
from virnucpro.classifier.files import classifier_to_bytes, load_classifier
from virnucpro.encoders.lite import lite_to_bytes
from virnucpro.encoders.weights import read_pickle
from virnucpro.io.frames import GENETIC_CODE
from virnucpro.training.lite.frames import FrameSet
from virnucpro.training.lite.trainer import (
    LiteTrainer,
    LiteTrainingSettings,
    chunk_scores,
    frame_margins,
)
from virnucpro.training.lite.word_counts import count_words

SETTINGS = LiteTrainingSettings(steps=6, dim=8, hidden=8)
VIRUS = [True, True, True, False, False, False]


@pytest.fixture(scope="module")
def material():
    """Frame sets of two lengths, clusters and counted words, for six genomes."""
    sets = [
        frame_set([frames(length + n, 12, length) for n in range(6)], VIRUS, length)
        for length in (600, 300)
    ]
    clusters = np.arange(6, dtype=np.int32)
    return sets, clusters, [count_words(pattern, sets, clusters) for pattern in SMALL]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(trainer, until):
    while trainer.step < until:
        trainer.advance()
    return trainer


def bytes_of(trainer, counted):
    pair = trainer.finish()
    word_counts = [counts.of_all_genomes for counts in counted]
    return (
        lite_to_bytes("nucleotide", pair.nucleotide, (), {}),
        lite_to_bytes("protein", pair.protein, word_counts, {}),
        classifier_to_bytes(pair.classifier_state(), encoders=(), chunk_lengths=(), extra={}),
    )


def test_stopped_and_gone_on_with_is_undisturbed(material, tmp_path):
    """Through a file, as a savepoint; the random numbers of others in between do not matter."""
    whole = bytes_of(run(LiteTrainer(SETTINGS, *material), 6), material[2])
    first = run(LiteTrainer(SETTINGS, *material), 3)
    path = tmp_path / "state.pt"
    buffer = io.BytesIO()
    torch.save(first.state(), buffer)
    path.write_bytes(buffer.getvalue())
    run(first, 5)  # what it does later is not in the state
    torch.manual_seed(99)
    second = LiteTrainer(SETTINGS, *material)
    torch.rand(7)
    second.load_state(read_pickle(path))
    assert second.step == 3
    assert bytes_of(run(second, 6), material[2]) == whole
    other = LiteTrainer(LiteTrainingSettings(steps=6, dim=8, hidden=8, seed=1), *material)
    assert bytes_of(run(other, 6), material[2])[0] != whole[0]


def test_it_learns_what_differs():
    """Frames rich in A and T against frames of any letters."""
    sets = [
        frame_set(
            [
                [
                    text.replace("C", "A").replace("TAA", "TTA").replace("TGA", "TTA")
                    if virus
                    else text
                    for text in frames(n, 30, 300)
                ]
                for n, virus in enumerate(VIRUS)
            ],
            VIRUS,
            300,
        )
    ]
    clusters = np.arange(6, dtype=np.int32)
    counted = [count_words(pattern, sets, clusters) for pattern in SMALL]
    trainer = run(
        LiteTrainer(LiteTrainingSettings(steps=20, dim=8, hidden=8), sets, clusters, counted), 20
    )
    assert np.mean(trainer.losses[-5:]) < 0.6 * np.mean(trainer.losses[:2])
    found = frame_margins(trainer.finish(), sets[0], [counts.of_all_genomes for counts in counted])
    assert ((found > 0) == sets[0].virus).mean() > 0.95


def test_margins_are_those_of_predict(material, tmp_path):
    """The encoders from their files, then the classifier from its own, frame by frame."""
    counted = material[2]
    trainer = run(LiteTrainer(SETTINGS, *material), 2)
    for name, data in zip(("n", "p", "c"), bytes_of(trainer, counted), strict=True):
        (tmp_path / f"{name}.safetensors").write_bytes(data)
    word_counts = [counts.of_all_genomes for counts in counted]
    texts = frames(7, 9, 300) + frames(8, 5, 120)
    made = frame_set([texts[:9], texts[9:]], [True, False], 300)
    found = frame_margins(trainer.finish(), made, word_counts, batch_size=4)
    nucleotide = open_path(tmp_path / "n.safetensors", "nucleotide").encode(texts, quiet)
    proteins = ["".join(GENETIC_CODE[t[i : i + 3]] for i in range(0, len(t), 3)) for t in texts]
    protein = open_path(tmp_path / "p.safetensors").encode(proteins, quiet)
    scores = load_classifier(tmp_path / "c.safetensors").scores(
        torch.cat([nucleotide, protein], dim=1)
    )
    logits = torch.logit(scores[:, 1].double()).numpy()
    assert np.allclose(found, logits, atol=5e-3)  # matrices are stored in 16 bits


def test_scores_of_chunks():
    found = np.array([2.0, -1.0, 0.5, -3.0, 60.0, -800.0], np.float32)
    numbers = np.array([4, 4, 2, 9, 9, 7], np.int32)
    virus = np.array([True, True, False, True, True, False])
    made = FrameSet(30, np.zeros((6, 11), np.uint8), virus, numbers, numbers, numbers)
    scores, labels = chunk_scores(found, made)

    def sigmoid(x):
        return 1 / (1 + math.exp(-x))

    expected = [
        sigmoid(0.5) - sigmoid(-0.5),  # chunk 2: one frame
        sigmoid(2) - sigmoid(1),  # chunk 4: the best for virus less the best for others
        -1.0,  # chunk 7
        sigmoid(60) - sigmoid(3),  # chunk 9
    ]
    assert np.allclose(scores, expected)
    assert labels.tolist() == [False, True, False, True]


@pytest.mark.parametrize("steps", [1, 5, 30, 6000])
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
