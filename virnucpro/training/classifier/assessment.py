"""How good the scores of single frames are, in the usual figures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from virnucpro.classifier import Classifier
from virnucpro.training.classifier.features import OpenFeatures, PartFeatures

FIGURES = ("frames", "virus", "accuracy", "precision", "recall", "f1", "auroc", "log_loss")


def logits_of(classifier: Classifier, features: PartFeatures) -> npt.NDArray[np.float64]:
    """float64 ``[n, 2]``: those of every row, as predict computes them, before the temperature."""
    rows = OpenFeatures(features)
    blocks = [classifier.logits(block).numpy() for block in rows.blocks(0, len(features))]
    return np.concatenate([np.zeros((0, 2)), *blocks]).astype(np.float64)


def assess(
    logits: npt.NDArray[np.float64], labels: npt.NDArray[np.int64], temperature: float
) -> Mapping[str, float]:
    """``FIGURES`` of frames, called virus where that is the likelier class.

    NaN is a figure that these frames do not define, such as an AUROC with one class only.
    """
    from sklearn.metrics import (
        accuracy_score,
        f1_score,
        precision_score,
        recall_score,
        roc_auc_score,
    )

    margins = (logits[:, 1] - logits[:, 0]) / temperature
    calls = (margins > 0).astype(np.int64)
    both = len(np.unique(labels)) == 2
    undefined = {"zero_division": np.nan}
    return {
        "frames": len(labels),
        "virus": int(labels.sum()),
        "accuracy": float(accuracy_score(labels, calls)),
        "precision": float(precision_score(labels, calls, **undefined)),
        "recall": float(recall_score(labels, calls, **undefined)),
        "f1": float(f1_score(labels, calls, **undefined)),
        "auroc": float(roc_auc_score(labels, margins)) if both else float("nan"),
        "log_loss": float(np.logaddexp(0, np.where(labels == 1, -margins, margins)).mean()),
    }
