"""The regions of training records that no window is drawn from, as a table says."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from virnucpro.io.delimited import open_table
from virnucpro.training.data.dataset import Dataset
from virnucpro.training.lite.genomes import MaskedRegions


def read_mask(path: Path, dataset: Dataset) -> MaskedRegions:
    """Return the regions of a table that lie in records labelled others.

    The table has the columns ``record``, ``start`` and ``end``, as ``STEM_regions.tsv`` has them
    among others. Bases are counted from 1, and ``end`` is the last one.

    Raises:
        UsageError: the table cannot be read.
        InputError: it is no such table, a record is not in the training part, or a region does not
            lie in its record.
    """
    lengths = dataset.record_lengths("train", "others")
    viruses = dataset.record_lengths("train", "virus")
    table = open_table(path)
    regions: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for line, (record, first, last) in table.rows("record", "start", "end"):
        if record in viruses:
            continue
        if record not in lengths:
            raise table.error(line, f"the training part of {dataset.root} has no record {record!r}")
        if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
            raise table.error(line, "start and end are not the first and the last base of a region")
        if int(last) > lengths[record]:
            raise table.error(line, f"{record!r} has {lengths[record]:,} bases, fewer than {last}")
        regions[record].append((int(first) - 1, int(last)))
    return dict(regions)
