"""The metrics of models by sequence and by residue."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef, roc_auc_score

from tests.unit.rcl.made_proteins import proteins
from tests.unit.training.made_genomes import RecordedProgress
from virnucpro.rcl.evaluation import evaluate_finder
from virnucpro.rcl.finders import find_region
from virnucpro.rcl.proteins import RclResult

PROTEINS = proteins(20)


class Known:
    """A model that knows the answers, but for an error of some residues, and of some proteins."""

    label, encoding, threshold = "known", "onehot", 0.5

    def __init__(self, shift=0, noise=0.0, blind=()):
        self.shift, self.noise, self.blind, self.model = shift, noise, blind, self

    def find(self, sequences):
        random = np.random.default_rng(len(sequences))
        results = []
        for sequence in sequences:
            protein = next(p for p in PROTEINS if p.sequence == sequence)
            labels = protein.labels() * (protein.accession not in self.blind)
            values = np.roll(labels, self.shift) * 0.8 + 0.1
            values = np.clip(values + self.noise * random.normal(size=len(values)), 0.001, 0.999)
            probabilities = values.astype(np.float32)
            region = find_region(probabilities, self.threshold, 1, 7)
            results.append(RclResult("found", region, probabilities))
        return results


def evaluated(model, of=PROTEINS):
    return evaluate_finder(model, of, RecordedProgress())


def test_a_model_that_is_always_right():
    table, metrics = evaluated(Known())
    assert (metrics == 1).all(axis=None)
    assert table.start.notna().tolist() == [True] * 20 + [False] * 10
    metrics = evaluated(Known(), PROTEINS[:20])[1].value  # without the others
    assert metrics[metrics.isna()].index.tolist() == ["precision", "f1"]
    assert metrics["recall"] == 1
    assert table.right.all()


@pytest.mark.parametrize(("shift", "exact"), [(1, 1.0), (2, 1.0), (3, 0.0)])
def test_shifted_regions(shift, exact):
    metrics = evaluated(Known(shift))[1].value
    assert metrics["mean_iou"] == pytest.approx((17 - shift) / (17 + shift))
    assert metrics["exact"] == exact
    assert metrics["recall"] == metrics["precision"] == 1.0


def test_missed_proteins_and_intervals():
    table, measured = evaluated(Known(blind=("S0", "S1")))
    metrics = measured.value
    assert metrics["recall"] == metrics["mean_iou"] == pytest.approx(0.9)
    assert metrics["accuracy"] == pytest.approx(28 / 30)
    _, low, high = measured.loc["recall"]
    assert 0.7 <= low < 0.9 < high <= 1.0
    assert table[~table.right].accession.tolist() == ["S0", "S1"]
    assert evaluated(Known(blind=("S0", "S1")))[1].equals(measured)


def test_residues_are_measured_as_scikit_learn_does():
    model = Known(noise=0.4)
    metrics = evaluated(model)[1].value
    scores = np.concatenate([r.probabilities for r in model.find([p.sequence for p in PROTEINS])])
    truth = np.concatenate([p.labels() for p in PROTEINS])
    assert metrics["residue_mcc"] == pytest.approx(matthews_corrcoef(truth, scores > 0.5))
    assert metrics["residue_auroc"] == pytest.approx(roc_auc_score(truth, scores))
    assert metrics["residue_accuracy"] == pytest.approx(np.mean((scores > 0.5) == truth))
