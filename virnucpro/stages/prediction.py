"""The scores of all frames in one table, and the highest ones of each chunk."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from virnucpro.contracts import ReportProgress, Task, TaskResult
from virnucpro.io.fasta import fasta_batches
from virnucpro.io.frames import chunk_of
from virnucpro.stages.base import HostStage
from virnucpro.stages.splitting import split_files
from virnucpro.store.ledger import Ledger
from virnucpro.tables import CONSENSUS, COPIES, PREDICTIONS

FRAMES_AT_A_TIME = 4096


@dataclass(frozen=True)
class PredictionStage(HostStage):
    """Joins the rows of all split files, in input order, to one table.

    With ``dedup``, a frame that is the same as an earlier one gets the scores of that one.
    """

    name, title = "prediction", "Prediction"

    dedup: bool = False

    def task(self, ledger: Ledger) -> Task:
        """Return the task of all files."""
        files = len(split_files(ledger, self.layout, "nucleotide"))
        inputs = tuple(self.layout.scores(number) for number in range(1, files + 1))
        if self.dedup:
            inputs += (self.layout.frames["nucleotide"], self.layout.copies_table)
        rows = ledger.rows(self.layout.frames["nucleotide"])
        return self.whole(inputs, (self.layout.predictions,), count=rows)

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Write a row per frame."""
        files = task.inputs[:-2] if self.dedup else task.inputs
        rows: Iterator[str] = chain.from_iterable(map(_lines, files))
        if self.dedup:
            frames, copies = task.inputs[-2:]
            rows = with_copies(rows, frames, copies)
        with self.disk.create(task.outputs[0]) as out:
            out.write(PREDICTIONS.header.encode())
            while some := list(islice(rows, FRAMES_AT_A_TIME)):
                out.write("".join(some).encode(), len(some))
                report(len(some), 0)
        return TaskResult(task, (out.output,))


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="\n") as rows:  # only a line feed ends a row
        yield from rows


def with_copies(rows: Iterator[str], frames: Path, copies: Path) -> Iterator[str]:
    """Yield the ``rows`` of frames that were embedded, and those of their copies, in input order.

    ``frames`` is the FASTA file of all frames, ``copies`` the table of the others. A frame that
    could not be embedded is left out, and so are its copies. Takes memory for each frame that has
    copies.
    """
    copied = {int(first) for (first,) in COPIES.read(copies, "first")}
    scores: dict[int, str] = {}  # of frames with copies, by their place, as cells behind the id
    table = COPIES.read(copies, "frame", "first")
    copy, row = next(table, None), next(rows, None)
    names = chain.from_iterable(names for names, _ in fasta_batches(frames, FRAMES_AT_A_TIME))
    for place, name in enumerate(names, 1):
        if copy is not None and copy[0] == name:
            if cells := scores.get(int(copy[1])):
                yield name + cells
            copy = next(table, None)
        elif row is not None and row.startswith(f"{name}\t"):
            if place in copied:
                scores[place] = row.removeprefix(name)
            yield row
            row = next(rows, None)
    if row is not None or copy is not None:
        raise AssertionError(f"{row or copy} is of no frame in {frames}")


@dataclass(frozen=True)
class ConsensusStage(HostStage):
    """Writes one row per chunk that has a prediction, in input order."""

    name, title = "consensus", "Consensus"
    durable: ClassVar[bool] = False

    def task(self, ledger: Ledger) -> Task:
        """Return the task of all predictions."""
        return self.whole((self.layout.predictions,), (self.layout.consensus,))

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Take the highest score of each class over the frames of a chunk."""
        with self.disk.create(task.outputs[0], durable=False) as out:
            out.write(CONSENSUS.header.encode())
            for columns in highest_scores(task.inputs[0]):
                named = dict(zip(CONSENSUS.row._fields, columns, strict=True))
                out.write(CONSENSUS.lines(**named).encode(), len(columns[0]))
        return TaskResult(task, (out.output,))


def highest_scores(path: Path) -> Iterator[list[list[Any]]]:
    """Yield the columns of ``CONSENSUS``, some chunks at a time, of a table of frames."""
    last: list[list[Any]] = [[], [], [], []]  # a chunk that may go on among the next frames
    for frames, *scores in PREDICTIONS.read_columns(path, "Sequence_ID", "score1", "score2"):
        # The frames of a chunk stand together: results are in input order.
        names = [*last[0], *map(chunk_of, frames)]
        is_first = [True, *map(operator.ne, names[1:], names)]
        starts, chunk = np.flatnonzero(is_first), np.cumsum(is_first) - 1
        highest, cells = [], []
        for before, after in zip(last[2:], scores, strict=True):
            texts = before + after
            numbers = np.array(list(map(float, texts)))
            highest.append(np.maximum.reduceat(numbers, starts))
            places = np.flatnonzero(numbers == highest[-1][chunk])
            places = places[np.diff(chunk[places], prepend=-1) > 0]  # the first of equal ones
            cells.append([texts[place] for place in places.tolist()])
        is_virus = (highest[1] >= highest[0]).tolist()
        columns = [list(compress(names, is_first)), is_virus, *cells]
        yield [column[:-1] for column in columns]
        last = [column[-1:] for column in columns]
    yield last
