"""Two scores for every frame."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from virnucpro.classifier.files import ClassifierInfo, load_classifier
from virnucpro.classifier.scoring import INNER_BATCH
from virnucpro.compute.threads import CoreThreads, prefetched
from virnucpro.contracts import (
    OutputFile,
    Receipts,
    ReportProgress,
    Task,
    TaskResult,
)
from virnucpro.encoders.family import refuse_changed_model
from virnucpro.stages.base import HostStage
from virnucpro.stages.copies import Scores, with_copies
from virnucpro.stages.scoring import ScoringStage, proved_scores, scores_receipt
from virnucpro.stages.splitting import split_files
from virnucpro.store.features import load_features
from virnucpro.tables import PREDICTIONS


@dataclass(frozen=True)
class PredictionStage(HostStage):
    """Classifies every merged row. ``rows`` are read at a time; results do not depend on it.

    With ``dedup``, a frame that is the same as an earlier one gets the scores of that one.
    """

    name: ClassVar[str] = "prediction"

    classifier: ClassifierInfo
    rows: int
    dedup: bool = False

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task for all merged files."""
        files = len(split_files(receipts, self.layout, "nucleotide"))
        inputs = tuple(self.layout.merged(number) for number in range(1, files + 1))
        if self.dedup:
            inputs += (self.layout.frames("nucleotide"), self.layout.copies_table)
        rows = receipts.outputs("translation")[0].rows
        params = {"classifier": self.classifier.file.sha256}
        task = self.whole(inputs, (self.layout.predictions,), params, rows)
        scores = (self.layout.scores(number) for number in range(1, files + 1))
        parts = [receipts.part(scores_receipt(path)) for path in scores]
        proved = tuple(part for part in parts if part is not None)
        return [replace(task, parts=proved if len(proved) == files else ())]

    def by_file(self) -> ScoringStage:
        """Return what makes the parts of the predictions, while there are features."""
        return ScoringStage(self.layout, self.disk, self.classifier)

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Score the rows of every file, in input order, on all threads that torch may use.

        Raises:
            ModelError: the classifier was replaced since the run began.
            OutputError: scores that are there already were changed meanwhile.
        """
        merged = task.inputs[:-2] if self.dedup else task.inputs
        rows = self._parts(task.parts) if task.parts else self._scored(merged)
        with self.disk.create(task.outputs[0]) as out, closing(rows):
            out.write(PREDICTIONS.header.encode())
            for ids, pairs in with_copies(rows, *task.inputs[-2:]) if self.dedup else rows:
                out.write(_lines(ids, pairs).encode(), len(ids))
                report(len(ids), 0)
        return TaskResult(task, (out.output,))

    def _parts(self, parts: Sequence[OutputFile]) -> Generator[tuple[list[str], Scores]]:
        """Yield ids and scores of all files of scores."""
        for part in parts:
            ids, scores = proved_scores(part)
            yield ids, scores.numpy()

    def _scored(self, paths: Sequence[Path]) -> Generator[tuple[list[str], Scores]]:
        """Yield ids and scores of all merged files, some at a time."""
        classifier = load_classifier(self.classifier.file.path)

        def scored(slab: tuple[list[str], torch.Tensor]) -> torch.Tensor:
            return classifier.scores(slab[1])

        with (
            closing(self._slabs(paths)) as slabs,
            closing(CoreThreads().map(scored, slabs)) as scores,
        ):
            for (ids, _), pairs in scores:
                yield ids, pairs.numpy()
        refuse_changed_model(self.classifier.file)

    def _slabs(self, paths: Sequence[Path]) -> Generator[tuple[list[str], torch.Tensor]]:
        """Ids and rows of all files, some at a time. The next file is read meanwhile."""
        size = -(-self.rows // INNER_BATCH) * INNER_BATCH
        files = (load_features(path, "merged", mapped=True) for path in paths)
        with closing(prefetched(files, 1)) as ahead:
            for features in ahead:
                for start in range(0, len(features.ids), size):
                    some = slice(start, start + size)
                    yield features.ids[some], features.data[some]


def _lines(ids: list[str], scores: Scores) -> str:
    """Format rows of the table; a float32 as its shortest decimal form that reads back the same."""
    row_of = PREDICTIONS.row_format("Sequence_ID", "Prediction", "score1", "score2")
    calls = np.where(scores[:, 1] > scores[:, 0], "virus", "others").tolist()
    others, virus = scores[:, 0].astype(str).tolist(), scores[:, 1].astype(str).tolist()
    return "".join(map(row_of, ids, calls, others, virus))
