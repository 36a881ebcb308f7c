"""Frames that are not embedded, because an earlier one has the same sequences."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from virnucpro.io.fasta import read_fasta
from virnucpro.tables import COPIES

Scores = npt.NDArray[np.float32]
"""Of frames: ``[n, 2]``, for others and virus."""
FRAMES_AT_A_TIME = 4096
_NONE = (math.nan, math.nan)


def with_copies(
    embedded: Iterable[tuple[list[str], Scores]], frames: Path, copies: Path
) -> Iterator[tuple[list[str], Scores]]:
    """Yield ids and scores of all frames, in input order, from those that were ``embedded``.

    ``frames`` is the FASTA file of all frames, ``copies`` the table of the others. A frame that
    could not be embedded is left out, and so are its copies. Takes 8 bytes of memory per frame.
    """
    scored = (row for ids, scores in embedded for row in zip(ids, scores.tolist(), strict=True))
    table = COPIES.read(copies, "frame", "first")
    row, copy = next(scored, None), next(table, None)
    known = array("f")
    ids: list[str] = []
    values = array("f")
    for name, _ in read_fasta(frames):
        pair: Iterable[float] = _NONE
        if copy is not None and copy[0] == name:
            place = 2 * (int(copy[1]) - 1)
            pair, copy = known[place : place + 2], next(table, None)
        elif row is not None and row[0] == name:
            pair, row = row[1], next(scored, None)
        known.extend(pair)
        if not math.isnan(known[-1]):
            ids.append(name)
            values.extend(pair)
        if len(ids) == FRAMES_AT_A_TIME:
            yield ids, np.asarray(values).reshape(-1, 2)
            ids, values = [], array("f")
    yield ids, np.asarray(values).reshape(-1, 2)
    if row is not None or copy is not None:
        raise AssertionError(f"{row or copy} is of no frame in {frames}")


def copies_of(chosen: Collection[str], frames: Path, copies: Path) -> Mapping[str, list[str]]:
    """Return the ids of the copies of the ``chosen`` frames, by the id of the frame."""
    numbers = {
        number: name for number, (name, _) in enumerate(read_fasta(frames), 1) if name in chosen
    }
    found: dict[str, list[str]] = {}
    for copy, first in COPIES.read(copies, "frame", "first"):
        if name := numbers.get(int(first)):
            found.setdefault(name, []).append(copy)
    return found
