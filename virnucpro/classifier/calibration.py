"""What was measured of a classifier and its encoders on records of known origin, and its file.

``virnucpro models calibrate`` writes ``NAME.calibration.json``. It belongs to the scores of these
weights, and decides what the last stage makes of them: no score depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct, convert, to_builtins

from virnucpro.classifier.contigs import ContigModel
from virnucpro.contracts import Json
from virnucpro.errors import ModelError
from virnucpro.events import Notice, Show
from virnucpro.models.store import own_folder
from virnucpro.settings import Bases
from virnucpro.store.documents import SCHEMAS, sealed, unsealed

SUFFIX = ".calibration.json"
SHIPPED = Path(__file__).parents[1] / "data" / "calibrations"


class Calibration(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The content of a file.

    Attributes:
        producer: the version of the program.
        records: SHA-256 of the records that were scored.
        weights: SHA-256 of the classifier, and of each encoder.
        precision: the arithmetic of the encoders.
        contigs: how chunks of ``chunk_length`` bases are put together, with the distributions.
        figures: what was measured on genomes that were not used for these numbers.
    """

    schema: Literal[1] = 1
    producer: str
    records: str
    weights: tuple[str, ...]
    precision: str
    chunk_length: Bases
    contigs: ContigModel
    figures: dict[str, Json]

    def to_bytes(self) -> bytes:
        """Return the text of its file."""
        return sealed({**to_builtins(self), "schema": SCHEMAS["calibration"]})


class FoundCalibration(NamedTuple):
    """Where the numbers for a chunk length are from."""

    path: Path
    contigs: ContigModel


def read_calibration(path: Path) -> Calibration:
    """Read a file. Raises ModelError where it is damaged or something else."""
    try:
        return convert(unsealed(path.read_bytes()), Calibration)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path} is no calibration, or damaged ({error}): remove it, and calibrate again"
        ) from error


def find_calibrations(
    classifier: str, weights: Sequence[str], precision: str, show: Show
) -> dict[int, FoundCalibration]:
    """Return the calibrations of these ``weights``, by chunk length, and say so.

    The own folder comes before the package, and the same precision before another one.
    ``classifier`` is the name of its file.

    Raises:
        ModelError: a file is damaged or something else.
    """
    found: dict[int, tuple[Path, Calibration]] = {}
    others = []
    for path in (p for place in (own_folder(), SHIPPED) for p in sorted(place.glob(f"*{SUFFIX}"))):
        own = read_calibration(path)
        if own.weights != tuple(weights):
            if path.name.startswith(f"{Path(classifier).stem}_"):
                others.append(path)
            continue
        earlier = found.get(own.chunk_length)
        if earlier is None or (earlier[1].precision != precision == own.precision):
            found[own.chunk_length] = path, own
    for length, (path, own) in found.items():
        text = f"chunks of {length} bases are calibrated by {path}"
        if own.precision != precision:
            text += f"; it was made in {own.precision}, and this run is {precision}"
        if path.parent != SHIPPED or own.precision != precision:
            show(Notice("info", text))
    if not found:
        for path in others:
            show(Notice("warning", f"{path} is of other weights, and not taken"))
    return {length: FoundCalibration(path, own.contigs) for length, (path, own) in found.items()}
