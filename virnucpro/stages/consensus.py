"""The scores of a chunk: the highest of its frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import ClassVar

from virnucpro.contracts import Receipts, ReportProgress, Task, TaskResult
from virnucpro.io.frames import chunk_of
from virnucpro.stages.base import HostStage
from virnucpro.tables import CONSENSUS, PREDICTIONS

ROWS_AT_A_TIME = 8192  # are written together


@dataclass(frozen=True)
class ConsensusStage(HostStage):
    """Writes one row per chunk that has a prediction, in input order."""

    name: ClassVar[str] = "consensus"
    reads_intermediate: ClassVar[bool] = False

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task for all predictions."""
        return [self.whole((self.layout.predictions,), (self.layout.consensus,), {})]

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Take the highest score of each class over the frames of a chunk."""
        with self.disk.create(task.outputs[0]) as out:
            out.write(CONSENSUS.header.encode())
            lines = _consensus(task.inputs[0])
            while batch := list(islice(lines, ROWS_AT_A_TIME)):
                out.write("".join(batch).encode(), len(batch))
        return TaskResult(task, (out.output,))


def _consensus(predictions: Path) -> Iterator[str]:
    row_of = CONSENSUS.row_format("Modified_ID", "Is_Virus", "max_score_0", "max_score_1")
    rows = PREDICTIONS.read(predictions, "Sequence_ID", "score1", "score2")
    # The frames of a chunk stand together: results are in input order.
    for chunk, frames in groupby(rows, key=lambda row: chunk_of(row[0])):
        (_, others, virus), *more = frames
        for _, other_others, other_virus in more:
            others = max(others, other_others, key=float)
            virus = max(virus, other_virus, key=float)
        yield row_of(chunk, float(virus) >= float(others), others, virus)
