"""Pictures of predictions: the probability along a protein, its RCL, and the residues there."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import numpy as np

from virnucpro.errors import InputError, UsageError
from virnucpro.metrics.plots import BLUE, GREY, ORANGE, image_of
from virnucpro.results import open_rcl_run
from virnucpro.tables import RCL_RESIDUES, RclResidueRow, RclRow

FLANK = 12  # residues that are shown on both sides of the RCL
LETTERS = 60  # residues that fit under the lower panel; of a longer RCL the first ones are shown
SUFFIX = RCL_RESIDUES.place("")


def residues_table(results: Path) -> Path:
    """Return the table of residues in an output directory of ``rcl predict``, or that file itself.

    Raises:
        UsageError: there is none, or more than one.
    """
    tables = [results] if results.is_file() else sorted(results.glob(f"*{SUFFIX}"))
    if len(tables) > 1:
        names = ", ".join(table.name for table in tables[:5])
        raise UsageError(f"{results} has several predictions: name one of {names}")
    if not tables or not tables[0].name.endswith(SUFFIX):
        raise UsageError(
            f"{results} has no *{SUFFIX}: make it with 'virnucpro rcl predict PROTEINS "
            f"--residues', and with --force where the prediction was made without it"
        )
    return tables[0]


def read_predictions(
    table: Path, accessions: Collection[str], most: int
) -> Iterator[tuple[RclRow, list[RclResidueRow], float]]:
    """Yield proteins of a prediction, their residues, and the threshold above which these count.

    They come in the order of the tables, at most ``most`` of them. ``accessions`` names them; if it
    is empty, these are the proteins with an RCL.

    Raises:
        UsageError: a protein is not in the tables, or they do not belong to a prediction.
        InputError: a table is damaged.
    """
    run = open_rcl_run(table.parent, table.name.removesuffix(SUFFIX))
    chosen: dict[str, RclRow] = {}
    for row in run.proteins():
        if row.accession in accessions or (not accessions and row.start is not None):
            chosen[row.accession] = row
            if len(chosen) == most:
                break
    missing = [accession for accession in accessions if accession not in chosen]
    if missing and len(chosen) < most:
        raise UsageError(f"{run.folder} has no protein {missing[0]!r}: check the id")
    threshold = float(run.record["settings"]["threshold"])
    for accession, residues in groupby(run.residues(), attrgetter("accession")):
        if not chosen:
            return
        if protein := chosen.pop(accession, None):
            rows = list(residues)
            if len(rows) != protein.length or (protein.end or 0) > len(rows):
                raise InputError(f"{table} does not fit {run.folder}: predict again")
            yield protein, rows, threshold


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
    below.bar(
        positions[part],
        probabilities[part],
        width=0.9,
        color=np.where(inside, ORANGE, BLUE).tolist(),
    )
    below.set(xlim=(shown[0] - 0.6, shown[-1] + 0.6))
    below.set_xticks(
        list(shown), [residue.residue for residue in residues[part]], family="monospace"
    )
    numbers = below.secondary_xaxis("top")
    tens = [n for n in shown if n % 10 == 0 and min(abs(n - first), abs(n - last)) > 2]
    numbers.set_xticks([*tens, *{first, last}.intersection(shown)])
    numbers.tick_params(labelsize=8)
    for axes in (above, below):
        if has_rcl:
            axes.axvspan(first - 0.5, last + 0.5, color=ORANGE, alpha=0.15, linewidth=0)
        axes.axhline(threshold, color=GREY, linestyle=":", linewidth=1)
        axes.set(ylim=(0, 1.02), ylabel="probability of RCL")
        axes.spines[["top", "right"]].set_visible(False)
    return image_of(figure, suffix)
