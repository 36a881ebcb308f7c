"""Rows of tables and calls of records for tests; a new column changes none of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from virnucpro.classifier.contigs import ContigModel
from virnucpro.classifier.evidence import GeneEvidence, no_evidence
from virnucpro.classifier.files import (
    LABELS,
    ClassifierMetadata,
    classifier_to_bytes,
    inspect_classifier,
)
from virnucpro.columns import MISSING, ResultTable
from virnucpro.io.records import Record
from virnucpro.settings import DEFAULT_THRESHOLDS, Thresholds
from virnucpro.stages.calls import STATUSES, Calls, Chunks, Rates, call_of, summarise
from virnucpro.stages.regions import Region
from virnucpro.stages.result_files import Block, ResultFiles

EXAMPLES: dict[type, object] = {str: "x", int: 5, float: 0.5, bool: True}


def with_changes(path: Path, **changed: Any) -> bytes:
    """Return a classifier whose file says something else in some fields of its metadata."""
    info = inspect_classifier(path)
    said = {name: getattr(info, name) for name in ClassifierMetadata.__struct_fields__}
    said["labels"] = info.labels or LABELS
    return classifier_to_bytes(info.model.state_dict(), **said | changed)


def line_of(table: ResultTable, **cells: object) -> str:
    """Return a row with ``cells``; every other cell has a value of the type of its column."""
    examples = {column.name: EXAMPLES[column.type] for column in table.columns}
    return table.line(**(examples | cells))


class Chunk(NamedTuple):
    """A chunk of a record, with its scores as files have them."""

    id: str
    start: int
    stop: int
    status: str
    frames: int
    others: str
    virus: str


def chunks_of(*records: Sequence[Chunk]) -> Chunks:
    """The columns of the chunks of records."""
    rows = [
        (number, each.start, each.stop, STATUSES.index(each.status), each.others, each.virus)
        for number, own in enumerate(records)
        for each in own
    ]
    *places, others, virus = zip(*rows, strict=True) if rows else [()] * 6
    scores = (
        [float(cell.replace(MISSING, "nan")) for cell in column] for column in (others, virus)
    )
    return Chunks(*(np.array(column, np.int64) for column in places), *map(np.array, scores))


def call_record(
    length: int,
    chunks: Sequence[Chunk],
    model: ContigModel | None = None,
    fdr: float | None = None,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> Any:
    """The call of a record of ``length`` bases with these chunks, a value for each column."""
    lengths = np.array([length])
    found, _ = summarise(lengths, chunks_of(chunks), model)
    calls = call_of(lengths, found, rates_of([fdr]), no_evidence(1), thresholds)
    return Calls(*(column[0] for column in calls))


def rates_of(
    fdr: Sequence[float | None],
    errors: Sequence[float | None] | None = None,
    *,
    supported: bool = True,
) -> Rates:
    """Rates of records, or of none of them."""
    columns = (np.array(column, np.float64) for column in (fdr, errors or [None] * len(fdr)))
    return Rates(*columns, supported)


def genes_of(
    hallmarks: Sequence[int],
    markers: Sequence[int] | None = None,
    virus_markers: Sequence[int] | None = None,
) -> GeneEvidence:
    """The evidence of the genes of records."""
    none = [0] * len(hallmarks)
    counts = (np.array(each or none) for each in (hallmarks, markers, virus_markers))
    return GeneEvidence(np.ones(len(hallmarks), bool), *counts)


def add_record(
    files: ResultFiles, record: Record, name: str, call: Any, regions: list[Region]
) -> None:
    """Add a record to files of results, which call it ``name``."""
    block = Block([name], np.array([[len(each)] for each in record.sequences]))
    files.add([record], block, Calls(*([value] for value in call)), {0: regions} if regions else {})
