"""The parts of a sample that are measured: all of it, each length, each group against the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from virnucpro.evaluation.sample import Bools, Ints, Sample

Kind = Literal["overall", "length", "group"]
NO_GROUP = "(no group)"


@dataclass(frozen=True)
class Slice:
    """Rows that are measured together, as a choice of cells.

    Attributes:
        kind: what it is a slice by.
        label: of a group, ``virus`` or ``others``; else empty.
        name: of the length or group.
        virus: ``[cells]``, those of its rows that are virus.
        others: ``[cells]``, those that are not.
        own: ``[cells]``, for a group the cells of the group alone; else all of them.
    """

    kind: Kind
    label: str
    name: str
    virus: Bools
    others: Bools
    own: Bools

    @property
    def rows(self) -> Bools:
        """``[cells]``, all of the slice."""
        return self.virus | self.others


@dataclass(frozen=True)
class Cells:
    """The rows that have label, group and length in common are a cell.

    Attributes:
        of_row: ``[n]``, number of each row's cell.
        virus: ``[cells]``.
        group: ``[cells]``, numbers of ``Sample.group_names``.
        length: ``[cells]``, numbers of ``Sample.length_names``.
    """

    of_row: Ints
    virus: Bools
    group: Ints
    length: Ints


def cells_of(sample: Sample) -> Cells:
    """Number the cells of a sample."""
    width = len(sample.length_names)
    codes, of_row = np.unique(sample.groups * width + sample.lengths, return_inverse=True)
    group, length = codes // width, codes % width
    virus = np.array([label == "virus" for label, _ in sample.group_names], np.bool_)
    return Cells(of_row.astype(np.int64), virus[group], group, length)


def slices_of(sample: Sample, cells: Cells) -> list[Slice]:
    """All slices: overall, then by length, then by group; each of the two only where it is known.

    A group has one label. Its rows are measured against all rows of the other label.
    """
    everything = np.ones(len(cells.virus), np.bool_)
    found = [Slice("overall", "", "all", cells.virus, ~cells.virus, everything)]
    for number, name in enumerate(sample.length_names):
        if name:
            own = cells.length == number
            found.append(Slice("length", "", name, cells.virus & own, ~cells.virus & own, own))
    named = sorted((*pair, n) for n, pair in enumerate(sample.group_names))
    for label, name, number in named if any(name for _, name, _ in named) else ():
        own = cells.group == number
        virus, others = (own, ~cells.virus) if label == "virus" else (cells.virus, own)
        found.append(Slice("group", label, name or NO_GROUP, virus, others, own))
    return found
