"""The parts of a sample that are measured: all of it, each length, each group against the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from virnucpro.evaluation.sample import Sample
from virnucpro.metrics.classification import Bools, Ints

SliceKind = Literal["overall", "length", "group"]
NO_GROUP = "(no group)"


@dataclass(frozen=True)
class Slice:
    """Rows that are measured together, as a choice of cells.

    Attributes:
        kind: what the sample is sliced by.
        label: ``virus`` or ``others`` for a group, else empty.
        name: the length or the group.
        virus: ``[cells]``, the cells of the slice that are virus.
        others: ``[cells]``, the cells of the slice that are not.
        own: ``[cells]``, for a group the cells of the group alone, else all cells of the slice.
    """

    kind: SliceKind
    label: str
    name: str
    virus: Bools
    others: Bools
    own: Bools

    @property
    def rows(self) -> Bools:
        """All cells of the slice, ``[cells]``."""
        return self.virus | self.others


@dataclass(frozen=True)
class Cells:
    """The cells of a sample. Rows with the same label, group and length form a cell.

    Attributes:
        of_row: ``[n]``, the number of the cell of each row.
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
    """Return the whole sample, then the lengths, then the groups, where these are known.

    A group has one label. Its rows are measured against all rows of the other label.
    """
    all_cells = np.ones(len(cells.virus), np.bool_)
    slices = [Slice("overall", "", "all", cells.virus, ~cells.virus, all_cells)]
    for number, name in enumerate(sample.length_names):
        if name:
            own = cells.length == number
            slices.append(Slice("length", "", name, cells.virus & own, ~cells.virus & own, own))
    if any(name for _, name in sample.group_names):
        for label, name, number in sorted((*pair, n) for n, pair in enumerate(sample.group_names)):
            own = cells.group == number
            virus, others = (own, ~cells.virus) if label == "virus" else (cells.virus, own)
            slices.append(Slice("group", label, name or NO_GROUP, virus, others, own))
    return slices
