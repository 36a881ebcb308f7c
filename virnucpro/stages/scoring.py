"""The scores of a split file, in a run that does not keep its features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch

from virnucpro.classifier.files import ClassifierInfo, load_classifier
from virnucpro.contracts import OutputFile, Receipts, ReportProgress, Task, TaskResult
from virnucpro.encoders.family import refuse_changed_model
from virnucpro.errors import OutputError
from virnucpro.stages.base import HostStage
from virnucpro.stages.splitting import split_files
from virnucpro.store.disk import sha256_of
from virnucpro.store.features import Features, encode_features, load_features


@dataclass(frozen=True)
class ScoringStage(HostStage):
    """Classifies the merged features of the split files, one after the other.

    It comes before the stage of predictions, which then reads its files instead of features. A
    score depends on its row and the place of that in the file, so they are the same to the bit.
    """

    name: ClassVar[str] = "scoring"
    intermediate: ClassVar[bool] = True

    classifier: ClassifierInfo

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task per split file."""
        params = {"classifier": self.classifier.file.sha256}
        tasks = []
        for number in range(1, len(split_files(receipts, self.layout, "nucleotide")) + 1):
            merged, output = self.layout.merged(number), self.layout.scores(number)
            task = self.whole((merged,), (output,), params)
            tasks.append(replace(task, receipt=scores_receipt(output)))
        return tasks

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Score one file.

        Raises:
            ModelError: the classifier was replaced since the run began.
        """
        classifier = load_classifier(self.classifier.file.path)
        features = load_features(task.inputs[0], "merged", mapped=True)
        scores = Features(features.ids, classifier.scores(features.data))
        refuse_changed_model(self.classifier.file)
        output = self.disk.save(task.outputs[0], encode_features(scores, "scores"), len(scores.ids))
        report(len(scores.ids), 0)
        return TaskResult(task, (output,))


def scores_receipt(scores: Path) -> Path:
    """Return the receipt of a file of scores."""
    return scores.with_name(scores.name + ".done")


def proved_scores(file: OutputFile) -> tuple[list[str], torch.Tensor]:
    """Return ids and scores, float32 ``[n, 2]``, of a file that its receipt describes.

    Raises:
        OutputError: it was changed meanwhile.
    """
    if sha256_of(file.path) != file.sha256:
        raise OutputError(
            f"{file.path} has other content than was written to it: run the same command again"
        )
    scores = load_features(file.path, "scores")
    return scores.ids, scores.data
