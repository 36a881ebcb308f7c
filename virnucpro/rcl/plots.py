"""Pictures of predictions: the probability along a protein, its RCL, and the residues there."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from virnucpro.columns import MISSING
from virnucpro.errors import InputError, UsageError
from virnucpro.layout import picture_name
from virnucpro.metrics.plots import BLUE, GREY, ORANGE, image_of
from virnucpro.rcl.models import Floats
from virnucpro.rcl.rule import RclRegion
from virnucpro.store.documents import parse_json
from virnucpro.tables import RCL_REGIONS, RCL_RESIDUES

_FLANK = 12  # residues that are shown on both sides of the RCL
_LETTERS = 60  # residues that fit under the lower panel; of a longer RCL the first ones are shown
_RESIDUES = RCL_RESIDUES.place("")


@dataclass(frozen=True)
class PlottedProtein:
    """A protein of a prediction.

    Attributes:
        accession: its id.
        sequence: its residues.
        probabilities: float32 ``[L]``.
        region: its RCL, if it has one.
        model: the model that made the prediction.
        threshold: probability above which a residue counts.
    """

    accession: str
    sequence: str
    probabilities: Floats
    region: RclRegion | None
    model: str
    threshold: float

    def file_name(self, suffix: str) -> str:
        """Return the name of its picture: the id, without characters that files cannot have."""
        return picture_name(self.accession, suffix)


def residues_table(results: Path) -> Path:
    """Return the table of residues in an output directory of ``rcl predict``, or that file itself.

    Raises:
        UsageError: there is none, or more than one.
    """
    if results.is_file():
        return results
    tables = sorted(results.glob(f"*{_RESIDUES}")) if results.is_dir() else []
    if len(tables) == 1:
        return tables[0]
    if tables:
        names = ", ".join(table.name for table in tables[:5])
        raise UsageError(f"{results} has several predictions: name one of {names}")
    raise UsageError(
        f"{results} has no *{_RESIDUES}: make it with 'virnucpro rcl predict PROTEINS --residues', "
        f"and with --force where the prediction was made without it"
    )


def read_predictions(
    residues: Path, accessions: Collection[str], most: int
) -> Iterator[PlottedProtein]:
    """Yield proteins of a prediction in the order of its tables, at most ``most`` of them.

    ``accessions`` names them; if it is empty, these are the proteins with an RCL.

    Raises:
        UsageError: a protein is not in the tables, or the tables are not those of a prediction.
        InputError: a table is damaged.
    """
    if not residues.name.endswith(_RESIDUES):
        raise UsageError(f"{residues} is not a table of residues: its name ends in {_RESIDUES}")
    stem = residues.name.removesuffix(_RESIDUES)
    regions = residues.with_name(RCL_REGIONS.place(stem))
    threshold = _threshold(residues.with_name(f"{stem}_rcl_run.json"))
    chosen: dict[str, tuple[RclRegion | None, str]] = {}
    try:
        columns = ("accession", "start", "end", "confidence", "model")
        for accession, start, end, confidence, model in RCL_REGIONS.read(regions, *columns):
            region = None
            if start != MISSING:
                region = RclRegion(int(start), int(end), float(confidence))
            if accession in accessions or (not accessions and region is not None):
                chosen[accession] = (region, model)
                if len(chosen) == most:
                    break
    except (OSError, ValueError) as error:
        raise InputError(f"{regions} cannot be read: {error}; predict again") from error
    missing = [accession for accession in accessions if accession not in chosen]
    if missing and len(chosen) < most:
        raise UsageError(f"{regions} has no protein {missing[0]!r}: check the id")
    try:
        with gzip.open(residues, "rt", encoding="utf-8", newline="\n") as file:
            if next(file, "") != RCL_RESIDUES.header:
                raise InputError(f"{residues} is not a table of residues; predict again")
            current, letters, values = "", list[str](), list[float]()
            left = dict(chosen)
            for line in file:
                accession, _, letter, probability = line.rstrip("\n").split("\t")
                if accession != current:
                    if current in left:
                        yield _plotted(current, letters, values, left.pop(current), threshold)
                    if not left:
                        return
                    current, letters, values = accession, [], []
                if accession in left:
                    letters.append(letter)
                    values.append(float(probability))
            if current in left:
                yield _plotted(current, letters, values, left.pop(current), threshold)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"{residues} is damaged: {error}; predict again") from error


def _threshold(record: Path) -> float:
    try:
        return float(parse_json(record.read_bytes())["settings"]["threshold"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(f"{record} cannot be read: {error}; predict again") from error


def _plotted(
    accession: str,
    letters: list[str],
    values: list[float],
    row: tuple[RclRegion | None, str],
    threshold: float,
) -> PlottedProtein:
    region, model = row
    if region is not None and not 1 <= region.start <= region.end <= len(letters):
        raise ValueError(f"the RCL of {accession} lies outside the protein")
    probabilities = np.array(values, np.float32)
    return PlottedProtein(accession, "".join(letters), probabilities, region, model, threshold)


def draw_protein(protein: PlottedProtein, suffix: str) -> bytes:
    """Return a picture: ``png``, ``svg`` or ``pdf``. The same protein gives the same bytes.

    The upper panel has the whole protein. The lower one has the residues of the RCL, or those
    around the highest probability where there is no RCL.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(1, 1))
    length, region = len(protein.sequence), protein.region
    positions = np.arange(1, length + 1)
    title = f"{protein.accession}, {length:,} residues: "
    if region is None:
        peak = int(protein.probabilities.argmax()) + 1
        first, last = peak, peak
        title += "no RCL"
    else:
        first, last = region.start, region.end
        title += f"RCL {first} to {last}, confidence {region.confidence:.3f}"
    figure.suptitle(f"{title} ({protein.model})", parse_math=False)
    shown = range(max(first - _FLANK, 1), min(last + _FLANK, length, first + _LETTERS) + 1)
    part = slice(shown[0] - 1, shown[-1])
    above.fill_between(positions, protein.probabilities, color=BLUE, alpha=0.3, step="mid")
    above.step(positions, protein.probabilities, where="mid", color=BLUE, linewidth=1)
    above.set(xlim=(0.5, length + 0.5), xlabel="residue")
    inside = (positions[part] >= first) & (positions[part] <= last) & (region is not None)
    below.bar(
        positions[part],
        protein.probabilities[part],
        width=0.9,
        color=np.where(inside, ORANGE, BLUE).tolist(),
    )
    below.set(xlim=(shown[0] - 0.6, shown[-1] + 0.6))
    below.set_xticks(list(shown), list(protein.sequence[part]), family="monospace")
    numbers = below.secondary_xaxis("top")
    tens = [n for n in shown if n % 10 == 0 and min(abs(n - first), abs(n - last)) > 2]
    numbers.set_xticks([*tens, *{first, last}.intersection(shown)])
    numbers.tick_params(labelsize=8)
    for axes in (above, below):
        if region is not None:
            axes.axvspan(first - 0.5, last + 0.5, color=ORANGE, alpha=0.15, linewidth=0)
        axes.axhline(protein.threshold, color=GREY, linestyle=":", linewidth=1)
        axes.set(ylim=(0, 1.02), ylabel="probability of RCL")
        axes.spines[["top", "right"]].set_visible(False)
    return image_of(figure, suffix)
