"""Pictures of predictions along a protein, and the history of a training for TensorBoard."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path

import numpy as np

from virnucpro.errors import UsageError
from virnucpro.events import EpochEnded, Event, Show
from virnucpro.report.plots import BLUE, GREY, ORANGE, image_of
from virnucpro.results import RclRun
from virnucpro.tables import RclResidueRow, RclRow

FLANK = 12  # residues that are shown on both sides of the RCL
LETTERS = 60  # residues that fit under the lower panel; of a longer RCL the first ones are shown
# Titles in TensorBoard; another metric of the validation part has the title validation/NAME.
TITLES = {"loss": "loss/train", "rate": "learning_rate", "validation_loss": "loss/validation"}
NOT_SHOWN = ("epoch", "epochs", "seconds")


def read_predictions(
    run: RclRun, accessions: Collection[str], most: int
) -> Iterator[tuple[RclRow, list[RclResidueRow]]]:
    """Yield proteins of a prediction, and their residues, in its order, at most ``most`` of them.

    ``accessions`` names them; if it is empty, these are the proteins with an RCL.
    """
    proteins = (p for p in run.proteins() if p.accession in accessions or not accessions)
    found = (protein for protein in proteins if accessions or protein.start is not None)
    chosen = {protein.accession: protein for protein in islice(found, most)}
    if len(chosen) < min(len(accessions), most):
        missing = next(accession for accession in accessions if accession not in chosen)
        raise UsageError(f"{run.folder} has no protein {missing!r}: check the id")
    for accession, residues in groupby(run.residues(), attrgetter("accession")):
        if accession in chosen:
            yield chosen[accession], list(residues)


def draw_protein(
    protein: RclRow, residues: list[RclResidueRow], threshold: float, suffix: str
) -> bytes:
    """Return a picture: ``png``, ``svg`` or ``pdf``. The same protein gives the same bytes.

    The upper panel has the whole protein. The lower one has the residues of the RCL, or those
    around the highest probability where there is no RCL.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(1, 1))
    probabilities = np.array([residue.probability for residue in residues])
    length = len(residues)
    positions = np.arange(1, length + 1)
    peak, has_rcl = int(probabilities.argmax()) + 1, protein.start is not None
    first, last = protein.start or peak, protein.end or peak
    found = f"RCL {first} to {last}, confidence {protein.confidence:.3f}" if has_rcl else "no RCL"
    title = f"{protein.accession}, {length:,} residues: {found}"
    figure.suptitle(f"{title} ({protein.model})", parse_math=False)
    shown = range(max(first - FLANK, 1), min(last + FLANK, length, first + LETTERS) + 1)
    part = slice(shown[0] - 1, shown[-1])
    above.fill_between(positions, probabilities, color=BLUE, alpha=0.3, step="mid")
    above.step(positions, probabilities, where="mid", color=BLUE, linewidth=1)
    above.set(xlim=(0.5, length + 0.5), xlabel="residue")
    inside = (positions[part] >= first) & (positions[part] <= last) & has_rcl
    colours = np.where(inside, ORANGE, BLUE).tolist()
    below.bar(positions[part], probabilities[part], width=0.9, color=colours)
    below.set(xlim=(shown[0] - 0.6, shown[-1] + 0.6))
    letters = [residue.residue for residue in residues[part]]
    below.set_xticks(list(shown), letters, family="monospace")
    for axes in (above, below):
        if has_rcl:
            axes.axvspan(first - 0.5, last + 0.5, color=ORANGE, alpha=0.15, linewidth=0)
        axes.axhline(threshold, color=GREY, linestyle=":", linewidth=1)
        axes.set(ylim=(0, 1.02), ylabel="probability of RCL")
        axes.spines[["top", "right"]].set_visible(False)
    return image_of(figure, suffix)


def keep_scalars(folder: Path, history: Sequence[Mapping[str, float]], show: Show) -> Show:
    """Return a function that shows every event, and writes each epoch for TensorBoard."""
    from torch.utils.tensorboard.writer import SummaryWriter

    # The history takes the place of what an earlier start wrote, or was killed before it could.
    writer = SummaryWriter(str(folder), purge_step=1)

    def write(row: Mapping[str, float]) -> None:
        for name, value in row.items():
            if name not in NOT_SHOWN:
                title = TITLES.get(name, f"validation/{name}")
                writer.add_scalar(title, value, row["epoch"])
        writer.flush()

    def show_and_write(event: Event) -> None:
        show(event)
        if isinstance(event, EpochEnded):
            write(event.row)

    for row in history:
        write(row)
    return show_and_write
