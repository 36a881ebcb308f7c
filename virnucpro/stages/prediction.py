"""Stage 7: two scores a frame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from virnucpro.checkpoint.codec import load_features
from virnucpro.classifier import INNER_BATCH, Classifier, load
from virnucpro.contracts import Done, Receipts, Report, Task
from virnucpro.stages.base import HostStage

HEADER = "Sequence_ID\tPrediction\tscore1\tscore2\n"


@dataclass(frozen=True)
class Prediction(HostStage):
    """Classifies every merged row. ``rows`` are read at a time; results do not depend on it."""

    name: ClassVar[str] = "prediction"

    classifier: Path
    classifier_sha256: str
    rows: int

    def plan(self, receipts: Receipts) -> list[Task]:
        """One task: all merged files."""
        files = int(receipts.facts(self.layout.receipt("splitting"))["files"])
        inputs = tuple(self.layout.merged(number) for number in range(1, files + 1))
        rows = int(receipts.facts(self.layout.receipt("translation"))["frames"])
        params = {"classifier": self.classifier_sha256}
        return [self.whole(inputs, (self.layout.predictions,), params, rows)]

    def run(self, task: Task, report: Report) -> Done:
        """Score the rows of every file, in input order."""
        classifier = load(self.classifier)
        slab = -(-self.rows // INNER_BATCH) * INNER_BATCH
        with self.disk.create(task.outputs[0]) as out:
            out.write(HEADER.encode())
            for path in task.inputs:
                features = load_features(path, "merged")
                for start in range(0, len(features.ids), slab):
                    ids = features.ids[start : start + slab]
                    scores = _scores(classifier, features.data[start : start + slab])
                    out.write("".join(_lines(ids, scores)).encode(), len(ids))
                    report(len(ids), 0)
        return Done(task, (out.output,))


def _scores(
    classifier: Classifier, rows: torch.Tensor
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return classifier.scores(rows).numpy()


def _lines(
    ids: list[str], scores: np.ndarray[tuple[int, int], np.dtype[np.float32]]
) -> Iterator[str]:
    """Rows of the table; a float32 in its shortest decimal form that reads back the same."""
    others, virus = scores[:, 0].astype(str).tolist(), scores[:, 1].astype(str).tolist()
    calls = np.where(scores[:, 1] > scores[:, 0], "virus", "others").tolist()
    for name, call, first, second in zip(ids, calls, others, virus, strict=True):
        yield f"{name}\t{call}\t{first}\t{second}\n"
