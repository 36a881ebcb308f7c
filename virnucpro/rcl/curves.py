"""The curves of a training as pictures, and its history as RCL-identifier writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from virnucpro.contracts import Json
from virnucpro.training.curves import draw_curve

METRICS = ("accuracy", "precision", "recall", "f1", "f1_macro", "mcc", "auc")


def history_document(history: Sequence[Mapping[str, float]]) -> dict[str, Json]:
    """Return the history with the keys of RCL-identifier, and the learning rates."""
    return {
        "train_losses": [row["loss"] for row in history],
        "val_losses": [row["validation_loss"] for row in history],
        "val_metrics": {name: [row[name] for row in history] for name in METRICS},
        "learning_rates": [row["rate"] for row in history],
    }


def draw_curves(history: Sequence[Mapping[str, float]], best_epoch: int) -> dict[str, bytes]:
    """Return two PNG files by name: the losses, and the metrics of the validation part."""
    losses = {"training": "loss", "validation": "validation_loss"}
    metrics = {name.replace("_", " "): name for name in METRICS}
    return {
        "loss_curve.png": draw_curve(history, best_epoch, losses, "loss"),
        "metrics_curve.png": draw_curve(history, best_epoch, metrics, "metrics of residues"),
    }
