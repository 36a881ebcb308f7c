"""The metrics of a trained classifier on single frames."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from virnucpro.classifier import Classifier
from virnucpro.metrics.classification import auroc, confusion_counts
from virnucpro.metrics.temperature import log_loss
from virnucpro.training.classifier.features import OpenFeatures, PartFeatures


def logits_of(classifier: Classifier, features: PartFeatures) -> npt.NDArray[np.float64]:
    """float64 ``[n, 2]``: those of every row, as predict computes them, before the temperature."""
    rows = OpenFeatures(features)
    blocks = [classifier.logits(block).numpy() for block in rows.blocks(0, len(features))]
    return np.concatenate([np.zeros((0, 2)), *blocks]).astype(np.float64)


def assess(
    logits: npt.NDArray[np.float64], labels: npt.NDArray[np.int64], temperature: float
) -> Mapping[str, float | None]:
    """Compute the metrics of frames that are called virus where that is the likelier class.

    A metric that these frames do not define, such as the AUROC of one class only, is None.
    """
    margins, virus = (logits[:, 1] - logits[:, 0]) / temperature, labels == 1
    counts = confusion_counts(virus, margins > 0)
    return {
        "frames": counts.rows,
        "virus": counts.virus,
        "accuracy": counts.accuracy,
        "precision": counts.precision,
        "recall": counts.recall,
        "f1": counts.f1,
        "auroc": auroc(virus, margins),
        "log_loss": log_loss(virus, margins),
    }
