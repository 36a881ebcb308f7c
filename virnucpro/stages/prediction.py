"""Two scores for every frame."""

from __future__ import annotations

import math
from array import array
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.classifier.files import INNER_BATCH, Classifier, ClassifierInfo, load_classifier
from virnucpro.compute.threads import CoreThreads
from virnucpro.contracts import OutputFile, Receipts, ReportProgress, Task, TaskResult
from virnucpro.encoders.family import refuse_changed_model
from virnucpro.errors import OutputError
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import receipt_beside
from virnucpro.stages.base import HostStage
from virnucpro.stages.splitting import split_files
from virnucpro.store.disk import sha256_of
from virnucpro.store.features import Features, encode_features, load_features
from virnucpro.tables import COPIES, PREDICTIONS

Scores = npt.NDArray[np.float32]
"""Of frames: ``[n, 2]``, for others and virus."""
FRAMES_AT_A_TIME = 4096


@dataclass(frozen=True)
class ScoringStage(HostStage):
    """Scores single split files, in a run that does not keep features, before they are removed.

    The stage of predictions then reads these files instead of features. A score depends on its row
    and the place of that in the file, so they are the same to the bit.
    """

    name: ClassVar[str] = "scoring"
    intermediate: ClassVar[bool] = True

    classifier: ClassifierInfo
    rows: int = INNER_BATCH

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task per split file."""
        params = {"classifier": self.classifier.file.sha256}
        files = range(1, len(split_files(receipts, self.layout, "nucleotide")) + 1)
        pairs = [(self.layout.merged(number), self.layout.scores(number)) for number in files]
        return [
            self.whole((merged,), (output,), params, receipt=receipt_beside(output))
            for merged, output in pairs
        ]

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Score one file; ModelError where the classifier was replaced since the run began."""
        scores = self.scores_of(load_classifier(self.classifier.file.path), task.inputs[0])
        refuse_changed_model(self.classifier.file)
        output = self.disk.save(task.outputs[0], encode_features(scores, "scores"), len(scores.ids))
        report(len(scores.ids), 0)
        return TaskResult(task, (output,))

    def scores_of(self, classifier: Classifier, merged: Path) -> Features:
        """Return ids and scores, float32 ``[n, 2]``, of a file of merged features."""
        features = load_features(merged, "merged", mapped=True)
        size = -(-self.rows // INNER_BATCH) * INNER_BATCH
        parts = [slice(n, n + size) for n in range(0, max(1, len(features.ids)), size)]
        scores = torch.cat([classifier.scores(features.data[part]) for part in parts])
        return Features(features.ids, scores)


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
        scoring = self.by_file().plan(receipts)
        inputs = tuple(path for task in scoring for path in task.inputs)
        if self.dedup:
            inputs += (self.layout.frames("nucleotide"), self.layout.copies_table)
        rows = receipts.outputs("translation")[0].rows
        params = {"classifier": self.classifier.file.sha256}
        task = self.whole(inputs, (self.layout.predictions,), params, rows)
        parts = [receipts.part(task.receipt) for task in scoring]
        proved = tuple(part for part in parts if part is not None)
        return [replace(task, parts=proved if len(proved) == len(scoring) else ())]

    def by_file(self) -> ScoringStage:
        """Return what makes the parts of the predictions, while there are features."""
        return ScoringStage(self.layout, self.disk, self.classifier, self.rows)

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Score the rows of every file, in input order, on all threads that torch may use."""
        with self.disk.create(task.outputs[0]) as out, closing(self._scored(task)) as rows:
            out.write(PREDICTIONS.header.encode())
            for ids, pairs in with_copies(rows, *task.inputs[-2:]) if self.dedup else rows:
                out.write(_lines(ids, pairs).encode(), len(ids))
                report(len(ids), 0)
        return TaskResult(task, (out.output,))

    def _scored(self, task: Task) -> Generator[tuple[list[str], Scores]]:
        """Yield ids and scores of all files, one after the other."""
        for part in task.parts:
            scores = _proved_scores(part)
            yield scores.ids, scores.data.numpy()
        if not task.parts:
            classifier, stage = load_classifier(self.classifier.file.path), self.by_file()
            merged = task.inputs[:-2] if self.dedup else task.inputs
            work = CoreThreads().map(lambda path: stage.scores_of(classifier, path), merged)
            with closing(work) as scored:
                for _, scores in scored:
                    yield scores.ids, scores.data.numpy()
            refuse_changed_model(self.classifier.file)


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
        pair: Iterable[float] = (math.nan, math.nan)
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


def _proved_scores(file: OutputFile) -> Features:
    """Return the scores in a file; OutputError where it is not what its receipt describes."""
    if sha256_of(file.path) != file.sha256:
        raise OutputError(
            f"{file.path} has other content than was written to it: run the same command again"
        )
    return load_features(file.path, "scores")


def _lines(ids: list[str], scores: Scores) -> str:
    """Format rows of the table; a float32 as its shortest decimal form that reads back the same."""
    row_of = PREDICTIONS.row_format("Sequence_ID", "Prediction", "score1", "score2")
    calls = np.where(scores[:, 1] > scores[:, 0], "virus", "others").tolist()
    others, virus = scores[:, 0].astype(str).tolist(), scores[:, 1].astype(str).tolist()
    return "".join(map(row_of, ids, calls, others, virus))
