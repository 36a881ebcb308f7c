"""The embeddings of a frame side by side, its two scores, and the highest ones of each chunk."""

from __future__ import annotations

import math
from array import array
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.classifier.files import Classifier, ClassifierInfo
from virnucpro.compute.threads import CoreThreads
from virnucpro.contracts import Receipts, ReportProgress, Task, TaskResult
from virnucpro.encoders.family import refuse_changed_models
from virnucpro.errors import OutputError
from virnucpro.io.fasta import read_fasta
from virnucpro.io.frames import chunk_of
from virnucpro.layout import MOLECULES, Molecule, receipt_beside
from virnucpro.stages.base import HostStage
from virnucpro.stages.splitting import split_files
from virnucpro.store.disk import hashed
from virnucpro.store.features import Features, encode_features, load_features
from virnucpro.tables import CONSENSUS, COPIES, PREDICTIONS

Scores = npt.NDArray[np.float32]
"""Of frames: ``[n, 2]``, for others and virus."""
FRAMES_AT_A_TIME = 4096


@dataclass(frozen=True)
class MergingStage(HostStage):
    """Writes ``[nucleotide | protein]`` rows in the order of the split file.

    With one of the ``molecules`` alone, a row is its embedding.
    """

    name, title, kind = "merging", "Merging", "merged"
    intermediate: ClassVar[bool] = True

    molecules: tuple[Molecule, ...] = MOLECULES

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task per split file; what failed in any molecule is left out."""
        tasks = []
        for number, split in enumerate(split_files(receipts, self.layout, "nucleotide"), 1):
            halves = [self.layout.features(molecule, number) for molecule in self.molecules]
            failed = {n for path in halves for n in receipts.figures(receipt_beside(path)).failed}
            output, params = self.layout.features("merged", number), {"failed": sorted(failed)}
            files = (*halves, split.path), (output,)
            tasks.append(self.whole(*files, params, receipt_beside(output)))
        return tasks

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Merge one file. The features of a frame that did not fail are in it (KeyError)."""
        failed = set(task.params["failed"])
        *feature_files, split_file = task.inputs
        names = [name for name, _ in read_fasta(split_file) if name not in failed]
        halves = []
        for path, molecule in zip(feature_files, self.molecules, strict=True):
            features = load_features(path, molecule, mapped=True)
            data = features.data
            if features.ids != names:  # something failed, or version 1 had another order
                rows = {name: row for row, name in enumerate(features.ids)}
                data = data[[rows[name] for name in names]]
            halves.append(data)
        merged = Features(names, torch.cat(halves, dim=1))
        output = self.disk.save(task.outputs[0], encode_features(merged, "merged"), len(names))
        report(len(names), 0)
        return TaskResult(task, (output,))


@dataclass(frozen=True)
class ScoringStage(HostStage):
    """Scores single split files, in a run that does not keep features, before they are removed.

    The stage of predictions then reads these files instead of features. A score depends on its row
    and the place of that in the file, so they are the same to the bit.
    """

    name, title = "scoring", "Scoring"
    intermediate: ClassVar[bool] = True

    classifier: ClassifierInfo

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task per split file."""
        params = {"classifier": self.classifier.file.sha256}
        tasks = []
        for number in range(1, len(split_files(receipts, self.layout, "nucleotide")) + 1):
            merged = self.layout.features("merged", number)
            output = self.layout.features("scores", number)
            tasks.append(self.whole((merged,), (output,), params, receipt_beside(output)))
        return tasks

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Score one file; ModelError where the classifier was replaced since the run began."""
        scores = scores_of(self.classifier.model, task.inputs[0])
        refuse_changed_models(self.classifier.file)
        output = self.disk.save(task.outputs[0], encode_features(scores, "scores"), len(scores.ids))
        report(len(scores.ids), 0)
        return TaskResult(task, (output,))


def scores_of(classifier: Classifier, merged: Path) -> Features:
    """Return ids and scores, float32 ``[n, 2]``, of a file of merged features."""
    features = load_features(merged, "merged", mapped=True)
    return Features(features.ids, classifier.scores(features.data))


@dataclass(frozen=True)
class PredictionStage(HostStage):
    """Classifies every merged row.

    With ``dedup``, a frame that is the same as an earlier one gets the scores of that one.
    """

    name, title = "prediction", "Prediction"

    classifier: ClassifierInfo
    dedup: bool = False

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task for all merged files."""
        scoring = self.by_file().plan(receipts)
        inputs = tuple(path for task in scoring for path in task.inputs)
        if self.dedup:
            inputs += (self.layout.frames["nucleotide"], self.layout.copies_table)
        rows = receipts.outputs("translation")[0].rows
        params = {"classifier": self.classifier.file.sha256}
        proved = tuple(part for task in scoring if (part := receipts.part(task.receipt)))
        parts = proved if len(proved) == len(scoring) else ()
        return [self.whole(inputs, (self.layout.predictions,), params, count=rows, parts=parts)]

    def by_file(self) -> ScoringStage:
        """Return what makes the parts of the predictions, while there are features."""
        return ScoringStage(self.layout, self.disk, self.classifier)

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Score the rows of every file, in input order, on all threads that torch may use."""
        row_of = PREDICTIONS.row_format("Sequence_ID", "Prediction", "score1", "score2")
        with self.disk.create(task.outputs[0]) as out, closing(self._scored(task)) as rows:
            out.write(PREDICTIONS.header.encode())
            for ids, pairs in with_copies(rows, *task.inputs[-2:]) if self.dedup else rows:
                calls = np.where(pairs[:, 1] > pairs[:, 0], "virus", "others").tolist()
                # A float32 is written as its shortest decimal form that reads back the same.
                lines = map(row_of, ids, calls, *pairs.T.astype(str).tolist())
                out.write("".join(lines).encode(), len(ids))
                report(len(ids), 0)
        return TaskResult(task, (out.output,))

    def _scored(self, task: Task) -> Generator[tuple[list[str], Scores]]:
        """Yield ids and scores of all files, one after the other."""
        for part in task.parts:
            if hashed(part.path).sha256 != part.sha256:
                raise OutputError(
                    f"{part.path} has other content than was written to it: run the same command "
                    f"again"
                )
            scores = load_features(part.path, "scores")
            yield scores.ids, scores.data.numpy()
        if not task.parts:
            merged = task.inputs[:-2] if self.dedup else task.inputs
            work = CoreThreads().map(partial(scores_of, self.classifier.model), merged)
            with closing(work) as scored:
                for _, scores in scored:
                    yield scores.ids, scores.data.numpy()
            refuse_changed_models(self.classifier.file)


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


@dataclass(frozen=True)
class ConsensusStage(HostStage):
    """Writes one row per chunk that has a prediction, in input order."""

    name, title = "consensus", "Consensus"
    reads_intermediate: ClassVar[bool] = False

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task for all predictions."""
        return [self.whole((self.layout.predictions,), (self.layout.consensus,), {})]

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Take the highest score of each class over the frames of a chunk."""
        row_of = CONSENSUS.row_format("Modified_ID", "Is_Virus", "max_score_0", "max_score_1")
        rows = PREDICTIONS.read(task.inputs[0], "Sequence_ID", "score1", "score2")
        with self.disk.create(task.outputs[0]) as out:
            out.write(CONSENSUS.header.encode())
            # The frames of a chunk stand together: results are in input order.
            for chunk, frames in groupby(rows, key=lambda row: chunk_of(row[0])):
                (_, others, virus), *more = frames
                for _, other_others, other_virus in more:
                    others = max(others, other_others, key=float)
                    virus = max(virus, other_virus, key=float)
                is_virus = float(virus) >= float(others)
                out.write(row_of(chunk, is_virus, others, virus).encode(), 1)
        return TaskResult(task, (out.output,))
