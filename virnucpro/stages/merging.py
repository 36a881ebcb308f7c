"""The embeddings of a frame side by side, matched by id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from virnucpro.contracts import Receipts, ReportProgress, Task, TaskResult
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import MOLECULES, Molecule, receipt_beside
from virnucpro.stages.base import HostStage
from virnucpro.stages.splitting import split_files
from virnucpro.store.features import Features, encode_features, load_features


@dataclass(frozen=True)
class MergingStage(HostStage):
    """Writes ``[nucleotide | protein]`` rows in the order of the split file.

    With one of the ``molecules`` alone, a row is its embedding.
    """

    name: ClassVar[str] = "merging"
    intermediate: ClassVar[bool] = True

    molecules: tuple[Molecule, ...] = MOLECULES

    @property
    def file_pattern(self) -> Path:
        """The merged features of a split file."""
        return self.layout.merged("{number}")

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task per split file; what failed in any molecule is left out."""
        tasks = []
        for number, split in enumerate(split_files(receipts, self.layout, "nucleotide"), 1):
            halves = [self.layout.features(molecule, number) for molecule in self.molecules]
            figures = [receipts.figures(receipt_beside(path)) for path in halves]
            params = {"failed": sorted({name for each in figures for name in each.failed})}
            output = self.layout.merged(number)
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
