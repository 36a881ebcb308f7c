"""The embeddings of a frame side by side, and its two scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.classifier.files import ClassifierInfo
from virnucpro.contracts import Molecule, OutputFile, ReportProgress, Task, TaskFigures, TaskResult
from virnucpro.encoders.family import refuse_changed_models
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import receipt_beside
from virnucpro.stages.base import HostStage
from virnucpro.store.features import Features, encode_features, load_features
from virnucpro.store.ledger import Ledger
from virnucpro.tables import PREDICTIONS


@dataclass(frozen=True)
class MergingStage(HostStage):
    """Puts the embeddings of each frame side by side, ``[nucleotide | protein]``, and scores them.

    With one of the ``molecules`` alone, a row is its embedding. Without a ``classifier``, nothing
    is scored. The merged features are written where they are to be kept, or where there are no
    scores. There is a task for each split file.
    """

    name, title = "merging", "Merging"
    durable: ClassVar[bool] = False  # a power cut costs what was scored in the last seconds

    molecules: tuple[Molecule, ...]
    classifier: ClassifierInfo | None = None
    keep: bool = True

    def task(self, ledger: Ledger, number: int = 1) -> Task:
        """Return the task of the split file ``number``, without what failed in any molecule."""
        layout = self.layout
        splits = tuple(layout.split(molecule, number) for molecule in self.molecules)
        features = tuple(layout.features(molecule, number) for molecule in self.molecules)
        failed = {
            n for path in features for n in ledger.figures(receipt_beside(path), TaskFigures).failed
        }
        merged, scores = layout.features("merged", number), layout.scores(number)
        outputs: tuple[Path, ...] = (merged,)
        if self.classifier is not None:
            outputs = (scores, merged) if self.keep else (scores,)
        return self.whole(
            splits,
            outputs,
            {"failed": sorted(failed)},
            receipt_beside(outputs[0]),
            reads=features,
            optional=() if merged in outputs else (merged,),
        )

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Merge and score one file; ModelError where the classifier was replaced meanwhile."""
        features, outputs = self._merged(task), list[OutputFile]()
        if self.classifier is not None:
            scores = self.classifier.model.scores(features.data).numpy()
            refuse_changed_models(self.classifier.file)
            content = prediction_rows(features.ids, scores).encode()
            rows = len(features.ids)
            outputs.append(self.disk.save(task.outputs[0], content, rows, durable=False))
        for path in task.optional:
            self.disk.remove(path)  # of an earlier start, which was to keep it
        if self.keep or self.classifier is None:
            content = encode_features(features, "merged")
            rows = len(features.ids)
            outputs.append(self.disk.save(task.outputs[-1], content, rows, durable=False))
        report(len(features.ids), 0)
        return TaskResult(task, tuple(outputs))

    def _merged(self, task: Task) -> Features:
        """Return ids and rows in the order of the split file; KeyError where one is missing."""
        failed = set(task.params["failed"])
        names = [name for name, _ in read_fasta(task.inputs[0]) if name not in failed]
        halves = []
        for path, molecule in zip(task.reads, self.molecules, strict=True):
            features = load_features(path, molecule, mapped=True)
            data = features.data
            if features.ids != names:  # something failed, or version 1 had another order
                rows = {name: row for row, name in enumerate(features.ids)}
                data = data[[rows[name] for name in names]]
            halves.append(data)
        return Features(names, torch.cat(halves, dim=1))


def prediction_rows(ids: list[str], scores: npt.NDArray[np.float32]) -> str:
    """Return rows of ``PREDICTIONS``, of frames and their scores ``[n, 2]`` for others and virus.

    A float32 is written as its shortest decimal form that reads back the same.
    """
    calls = np.where(scores[:, 1] > scores[:, 0], "virus", "others").tolist()
    others, virus = scores.T.astype(str).tolist()
    return PREDICTIONS.lines(Sequence_ID=ids, Prediction=calls, score1=others, score2=virus)
