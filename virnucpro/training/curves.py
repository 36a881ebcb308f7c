"""The history of a training for TensorBoard and as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from virnucpro.metrics.plots import BLACK, OTHERS, plain_axes, png_of
from virnucpro.training.progress import EpochEnded, ReportEvent, TrainingEvent

# Titles in TensorBoard; another metric of the validation part has the title validation/NAME.
TITLES = {"loss": "loss/train", "rate": "learning_rate", "validation_loss": "loss/validation"}
NOT_SHOWN = ("epoch", "epochs", "seconds")


def keep_scalars(
    folder: Path, history: Sequence[Mapping[str, float]], report: ReportEvent
) -> ReportEvent:
    """Return a function that reports every event, and writes each epoch for TensorBoard."""
    from torch.utils.tensorboard.writer import SummaryWriter

    # The history takes the place of what an earlier start wrote, or was killed before it could.
    writer = SummaryWriter(str(folder), purge_step=1)

    def write(row: Mapping[str, float]) -> None:
        for name, value in row.items():
            if name not in NOT_SHOWN:
                title = TITLES.get(name, f"validation/{name}")
                writer.add_scalar(title, value, row["epoch"])
        writer.flush()

    def report_and_write(event: TrainingEvent) -> None:
        report(event)
        if isinstance(event, EpochEnded):
            write(event.row)

    for row in history:
        write(row)
    return report_and_write


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
