"""The curves of a training as pictures, and its history as RCL-identifier writes it."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping, Sequence

from virnucpro.contracts import Json
from virnucpro.evaluation.plots import BLACK, OTHERS, png_of

METRICS = ("accuracy", "precision", "recall", "f1", "f1_macro", "mcc", "auc")
COLOURS = (*OTHERS, BLACK)


def history_document(history: Sequence[Mapping[str, float]]) -> dict[str, Json]:
    """Return the history with the keys of RCL-identifier, and the learning rates."""
    return {
        "train_losses": [row["loss"] for row in history],
        "val_losses": [row["validation_loss"] for row in history],
        "val_metrics": {name: [row[name] for row in history] for name in METRICS},
        "learning_rates": [row["rate"] for row in history],
    }


def scalars_of_epoch(row: Mapping[str, float]) -> bytes:
    """Return the scalars of an epoch, a row of the history, as a file that TensorBoard reads.

    A file per epoch is written whole. The writer of TensorBoard appends to one file in a thread of
    its own, whose errors reach nobody.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter
    from torch.utils.tensorboard.summary import scalar

    titles = {"loss": "loss/train", "rate": "learning_rate", "validation_loss": "loss/validation"}
    titles |= {name: f"validation/{name}" for name in METRICS}
    file, now = io.BytesIO(), time.time()
    records = RecordWriter(file)
    records.write(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
    for name, title in titles.items():
        summary = scalar(title, row[name])  # type: ignore[no-untyped-call]
        event = Event(wall_time=now, step=int(row["epoch"]), summary=summary)
        records.write(event.SerializeToString())
    return file.getvalue()


def draw_curves(history: Sequence[Mapping[str, float]], best_epoch: int) -> dict[str, bytes]:
    """Return two PNG files by name: the losses, and the metrics of the validation part."""
    losses = {"training": "loss", "validation": "validation_loss"}
    metrics = {name.replace("_", " "): name for name in METRICS}
    return {
        "loss_curve.png": _curve(history, best_epoch, losses, "loss"),
        "metrics_curve.png": _curve(history, best_epoch, metrics, "metrics of residues"),
    }


def _curve(
    history: Sequence[Mapping[str, float]],
    best_epoch: int,
    names: Mapping[str, str],
    title: str,
) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    epochs = [row["epoch"] for row in history]
    for (label, name), colour in zip(names.items(), COLOURS, strict=False):
        axes.plot(epochs, [row[name] for row in history], ".-", color=colour, label=label)
    axes.axvline(best_epoch, color="#999999", linestyle=":", label=f"best epoch {best_epoch}")
    axes.set(xlabel="epoch", ylabel=title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    return png_of(figure)
