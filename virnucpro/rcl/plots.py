"""Pictures of predictions: the probability along a protein, its RCL, and the residues there."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path

import numpy as np

from virnucpro.errors import InputError, UsageError
from virnucpro.metrics.plots import BLUE, GREY, ORANGE, image_of
from virnucpro.results import RclRun, open_rcl_run
from virnucpro.tables import RCL_RESIDUES, RclResidueRow, RclRow

FLANK = 12  # residues that are shown on both sides of the RCL
LETTERS = 60  # residues that fit under the lower panel; of a longer RCL the first ones are shown
SUFFIX = RCL_RESIDUES.place("")


def named_run(results: Path) -> RclRun:
    """Return the run in an output directory of ``rcl predict``, or of the table of its residues."""
    if not results.is_file():
        return open_rcl_run(results)
    return open_rcl_run(results.parent, results.name.removesuffix(SUFFIX))


def read_predictions(
    run: RclRun, accessions: Collection[str], most: int
) -> Iterator[tuple[RclRow, list[RclResidueRow]]]:
    """Yield proteins of a prediction, and their residues, in its order, at most ``most`` of them.

    ``accessions`` names them; if it is empty, these are the proteins with an RCL.
    """
    wanted = (row for row in run.proteins() if row.accession in accessions or not accessions)
    found = (row for row in wanted if accessions or row.start is not None)
    chosen = {row.accession: row for row in islice(found, most)}
    if len(chosen) < min(len(accessions), most):
        missing = next(accession for accession in accessions if accession not in chosen)
        raise UsageError(f"{run.folder} has no protein {missing!r}: check the id")
    for accession, residues in groupby(run.residues(), attrgetter("accession")):
        if not chosen:
            return
        if protein := chosen.pop(accession, None):
            rows = list(residues)
            if len(rows) != protein.length or (protein.end or 0) > len(rows):
                raise InputError(f"{run.folder}: {RCL_RESIDUES.place(run.stem)} is damaged")
            yield protein, rows


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
    numbers = below.secondary_xaxis("top")
    numbers.set_xticks([n for n in shown if n % 10 == 0])
    numbers.tick_params(labelsize=8)
    for axes in (above, below):
        if has_rcl:
            axes.axvspan(first - 0.5, last + 0.5, color=ORANGE, alpha=0.15, linewidth=0)
        axes.axhline(threshold, color=GREY, linestyle=":", linewidth=1)
        axes.set(ylim=(0, 1.02), ylabel="probability of RCL")
        axes.spines[["top", "right"]].set_visible(False)
    return image_of(figure, suffix)
