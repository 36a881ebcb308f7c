"""The history of a training for TensorBoard and as pictures."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from virnucpro.metrics.plots import BLACK, OTHERS, plain_axes, png_of
from virnucpro.store.disk import Disk
from virnucpro.training.progress import EpochEnded, ReportEvent, TrainingEvent

# Titles in TensorBoard; another metric of the validation part has the title validation/NAME.
TITLES = {
    "loss": "loss/train",
    "rate": "learning_rate",
    "validation_loss": "loss/validation",
    "auroc": "auroc/validation",
}
NOT_SHOWN = ("epoch", "epochs", "seconds")
_SCALARS = re.compile(r"events\.out\.tfevents\.(\d{10})")


def keep_scalars(
    folder: Path, history: Sequence[Mapping[str, float]], report: ReportEvent, disk: Disk
) -> ReportEvent:
    """Return a function that reports every event, and writes each epoch for TensorBoard.

    Each epoch is a file, written whole: the writer of TensorBoard appends to one file in a thread
    of its own, whose errors reach nobody. What an earlier start was killed before it could write is
    written now, and what is of later epochs than ``history`` is removed.
    """

    def place(epoch: float) -> Path:
        return folder / f"events.out.tfevents.{epoch:010.0f}"  # TensorBoard reads in this order

    disk.sweep(folder)
    for path in sorted(folder.glob("events.out.tfevents.*")):
        if (match := _SCALARS.fullmatch(path.name)) and int(match[1]) > len(history):
            disk.remove(path)
    for row in history:
        if not place(row["epoch"]).exists():
            disk.save(place(row["epoch"]), scalars_of_epoch(row))

    def report_and_keep(event: TrainingEvent) -> None:
        report(event)
        if isinstance(event, EpochEnded):
            row = {"epoch": event.epoch, "loss": event.loss, **event.metrics, "rate": event.rate}
            disk.save(place(event.epoch), scalars_of_epoch(row))

    return report_and_keep


def scalars_of_epoch(row: Mapping[str, float]) -> bytes:
    """Return the scalars of an epoch, a row of the history, as a file that TensorBoard reads."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter
    from torch.utils.tensorboard.summary import scalar

    file, now = io.BytesIO(), time.time()
    records = RecordWriter(file)
    records.write(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
    for name, value in row.items():
        if name not in NOT_SHOWN:
            summary = scalar(TITLES.get(name, f"validation/{name}"), value)  # type: ignore[no-untyped-call]
            event = Event(wall_time=now, step=int(row["epoch"]), summary=summary)
            records.write(event.SerializeToString())
    return file.getvalue()


def draw_curve(
    history: Sequence[Mapping[str, float]], best_epoch: int, names: Mapping[str, str], title: str
) -> bytes:
    """Return a PNG of columns of the history by epoch; ``names`` gives the column of each label."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = plain_axes(figure.subplots())
    epochs = [row["epoch"] for row in history]
    for (label, name), colour in zip(names.items(), (*OTHERS, BLACK), strict=False):
        axes.plot(epochs, [row[name] for row in history], ".-", color=colour, label=label)
    axes.axvline(best_epoch, color="#999999", linestyle=":", label=f"best epoch {best_epoch}")
    axes.set(xlabel="epoch", ylabel=title)
    axes.legend(frameon=False, fontsize="small")
    return png_of(figure)
