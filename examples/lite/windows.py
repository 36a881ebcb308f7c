"""The genomes of a data set in memory, the windows that are drawn from them, and what these count.

Windows are drawn by group and taxon, not from masked regions, and more often from groups that are
told apart worse. A window counts by how rare its label is at its GC.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from virnucpro.columns import row_error, table_rows
from virnucpro.encoders.lite import UNKNOWN, base_numbers
from virnucpro.errors import InputError
from virnucpro.io.frames import MOST_UNKNOWN
from virnucpro.training.data.dataset import Dataset, LabelledRecord

Bases = npt.NDArray[np.uint8]

# Groups and taxa count by the square root of their bases. In proportion to the bases, few bacteria
# would be nearly everything; if all counted alike, a small group would be learned by heart.
POWER = 0.5
SHORTEST = 150  # bases; no window is drawn from a shorter record


@dataclass(frozen=True)
class GenomeSet:
    """The records of one part, of which ``bases`` has all bases, 0 to 4, one after the other.

    The others have one value per record; groups and taxa are the numbers of their names.
    """

    bases: Bases
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    virus: npt.NDArray[np.bool_]
    groups: npt.NDArray[np.int32]
    taxa: npt.NDArray[np.int32]
    group_names: tuple[str, ...]

    def windows(
        self, records: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], length: int
    ) -> Bases:
        """Return the ``length`` bases from each offset of each record: uint8 ``[n, length]``."""
        places = (self.starts[records] + offsets)[:, None] + np.arange(length)
        return np.asarray(self.bases[places])


MaskedRegions = Mapping[str, Sequence[tuple[int, int, str, bool]]]
"""Regions by the id of their record: first base and the one after the last, from 0; the group they
are drawn as, or no name where they are not trained on; and whether they are drawn as virus."""


def genome_set(records: Iterable[LabelledRecord], masked: MaskedRegions | None = None) -> GenomeSet:
    """Read labelled records; one that is too short for any window is left out.

    Each part of a record that is left between its ``masked`` regions counts as a record, and so
    does a region with a group of its own.
    """
    groups: dict[str, int] = {}
    taxa: dict[str, int] = {}
    bases: list[Bases] = []
    columns: list[tuple[int, ...]] = []
    for record in records:
        regions = sorted((masked or {}).get(record.record, ()))
        starts = [0, *accumulate((region[1] for region in regions), max)]
        ends = [*(region[0] for region in regions), len(record.sequence)]
        own = record.group, record.label == "virus"
        parts = [(*ends_of, *own) for ends_of in zip(starts, ends, strict=True)]
        for start, end, group, viral in [*parts, *(region for region in regions if region[2])]:
            if end - start < SHORTEST:
                continue
            ids = groups.setdefault(group, len(groups)), taxa.setdefault(record.taxon, len(taxa))
            bases.append(base_numbers([record.sequence[start:end]])[0])
            columns.append((end - start, viral, *ids))
    lengths, virus, group_numbers, taxon_numbers = np.array(columns, np.int64).reshape(-1, 4).T
    return GenomeSet(
        np.concatenate([np.empty(0, np.uint8), *bases]),
        np.cumsum(lengths) - lengths,
        lengths,
        virus.astype(np.bool_),
        group_numbers.astype(np.int32),
        taxon_numbers.astype(np.int32),
        tuple(groups),
    )


class WindowSampler:
    """Draws windows of a set: a group, a taxon of it, and then any place of its records.

    Groups and taxa are drawn by ``POWER`` of their bases; records shorter than a window are not.
    """

    def __init__(self, genomes: GenomeSet, longest: int) -> None:
        """Prepare for windows of at most ``longest`` bases."""
        self._genomes = genomes
        self._rows: list[npt.NDArray[np.int64]] = []
        self._weights: list[npt.NDArray[np.float64]] = []
        self._cumulative: list[npt.NDArray[np.float64]] = []
        for label, virus in (("others", False), ("virus", True)):
            rows = np.flatnonzero((genomes.virus == virus) & (genomes.lengths >= longest))
            if not len(rows):
                raise InputError(f"no {label} records of {longest} bases to train on")
            self._rows.append(rows)
            self._weights.append(_record_weights(genomes, rows))
            self._cumulative.append(np.cumsum(self._weights[-1]))

    def reweigh(self, factors: npt.NDArray[np.float64]) -> None:
        """Draw each group of a label ``factors`` (float64 ``[groups]``) as often as at first."""
        groups = self._genomes.groups
        self._cumulative = [
            np.cumsum(weights * factors[groups[rows]])
            for rows, weights in zip(self._rows, self._weights, strict=True)
        ]

    def draw(
        self, count: int, length: int, random: np.random.Generator
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return records and offsets of ``count`` windows, one half others, then virus."""
        chosen = []
        for rows, cumulative in zip(self._rows, self._cumulative, strict=True):
            positions = np.searchsorted(cumulative, random.random(count // 2) * cumulative[-1])
            chosen.append(rows[np.minimum(positions, len(rows) - 1)])
        records = np.concatenate(chosen)
        room = self._genomes.lengths[records] - length + 1
        return records, (random.random(len(records)) * room).astype(np.int64)


def _record_weights(genomes: GenomeSet, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return how often each of the records is drawn: float64 ``[n]``."""
    lengths, groups = genomes.lengths[rows].astype(np.float64), genomes.groups[rows]
    pairs = np.stack([groups, genomes.taxa[rows]], axis=1)
    taxa, numbers = np.unique(pairs, axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    taxon_bases = np.bincount(numbers, lengths)
    group_bases = np.bincount(groups, lengths)[groups]
    group_total = np.bincount(taxa[:, 0], taxon_bases**POWER)[groups]
    return group_bases**POWER * taxon_bases[numbers] ** (POWER - 1) / group_total * lengths


def measured_windows(
    genomes: GenomeSet, length: int, count: int, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return records and offsets of about ``count`` windows of known bases to measure with.

    They are drawn as in training, half of them virus; no more than the set has side by side, and
    none where a label has no record of that length.
    """
    count = min(count, max(2, len(genomes.bases) // length // 2 * 2))
    try:
        sampler = WindowSampler(genomes, length)
    except InputError:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    records, offsets = sampler.draw(count, length, np.random.default_rng((seed, length)))
    unknown = (genomes.windows(records, offsets, length) == UNKNOWN).mean(axis=1)
    known = unknown <= MOST_UNKNOWN
    return records[known], offsets[known]


def mutated(windows: Bases, rate: float, random: np.random.Generator) -> Bases:
    """Replace bases by any other in half of the windows, each with up to twice ``rate``.

    Such windows resemble more distant relatives than the data set holds, and reads with errors.
    """
    rates = random.random((len(windows), 1)) * 2 * rate * (random.random((len(windows), 1)) < 0.5)
    replaced = (random.random(windows.shape) < rates) & (windows < UNKNOWN)
    windows[replaced] = random.integers(0, 4, int(replaced.sum()))
    return windows


REMEMBERED_LOSSES = 2000  # windows of a group in the running mean of its loss
GC_EDGES = (0.30, 0.35, 0.40, 0.45, 0.50, 0.55, 0.60, 0.65, 0.70)
MOST_WEIGHT = 4.0  # of a window, and the inverse of the least
REMEMBERED_GC = 20_000  # windows in the running shares of GC


def note_losses(
    means: npt.NDArray[np.float64],
    groups: npt.NDArray[np.int32],
    losses: npt.NDArray[np.float32],
) -> None:
    """Take the losses of the windows of a batch into the running mean of each group.

    A group that is told apart worse than others is drawn more often, in the manner of group
    distributionally robust optimization (Sagawa et al. 2020, ICLR). Otherwise groups with the most
    bases decide what is learned, however well they are known already.
    """
    counts = np.bincount(groups, minlength=len(means))
    found = np.bincount(groups, losses, minlength=len(means)) / np.maximum(counts, 1)
    means += (1 - (1 - 1 / REMEMBERED_LOSSES) ** counts) * (found - means)


def even_gc_shares() -> npt.NDArray[np.float64]:
    """Return shares of the ranges of GC among the windows of either label, before the first one."""
    return np.full((2, len(GC_EDGES) + 1), 1 / (len(GC_EDGES) + 1))


def gc_weights(
    shares: npt.NDArray[np.float64], windows: Bases, labels: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Take a batch into the running ``shares``; return what each window counts: float32 ``[n]``.

    The viruses of a data set have another GC than its hosts. A network that learns this finds no
    virus of high GC, so a window counts by how rare its label is at its GC.
    """
    known = np.maximum((windows < UNKNOWN).sum(axis=1), 1)
    bins = np.digitize(((windows == 1) | (windows == 2)).sum(axis=1) / known, GC_EDGES)
    for label, own in enumerate(shares):
        chosen = bins[labels == label]
        counts = np.bincount(chosen, minlength=len(own))
        kept = (1 - 1 / REMEMBERED_GC) ** len(chosen)
        own *= kept
        own += (1 - kept) * counts / max(len(chosen), 1)
    wanted = shares.mean(axis=0)
    weights = np.clip(wanted / np.maximum(shares, 1e-6), 1 / MOST_WEIGHT, MOST_WEIGHT)
    return np.asarray(weights[labels, bins], np.float32)


def read_mask(path: Path, dataset: Dataset) -> MaskedRegions:
    """Return the regions of a table that lie in records labelled others.

    The table has the columns ``record``, ``start`` and ``end``, as ``STEM_regions.tsv`` has them
    among others. Bases are counted from 1, and ``end`` is the last one. It may have the columns
    ``group``, which a region is drawn as, and ``label``, which is ``virus`` or empty.
    """
    known = {record: (label, bases) for record, label, *_, bases in dataset.genomes("train")}
    regions: dict[str, list[tuple[int, int, str, bool]]] = defaultdict(list)
    rows = table_rows(path, "record", "start", "end", optional=["group", "label"])
    for line, (record, *ends, group, drawn) in rows:
        label, bases = known.get(record, ("others", 0))
        if label == "virus":
            continue
        first, last = (int(end) if end.isdecimal() else 0 for end in ends)
        if not (1 <= first <= last <= bases and drawn in ("", "virus" if group else "")):
            region = f"bases {ends[0]} to {ends[1]}, group {group!r}, label {drawn!r}"
            raise row_error(path, line, f"{record!r} has no such region: {region}")
        regions[record].append((first - 1, last, group, drawn == "virus"))
    return dict(regions)
