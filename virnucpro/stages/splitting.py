"""The frames in files of a fixed number of records, whatever the hardware."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from virnucpro.contracts import SPLITTING, OutputFile, Receipts, ReportProgress, Task, TaskResult
from virnucpro.io.fasta import fasta_bytes, read_fasta
from virnucpro.layout import MOLECULES, Layout, Molecule
from virnucpro.stages.base import HostStage


@dataclass(frozen=True)
class SplittingStage(HostStage):
    """Writes ``sequences_per_file`` frames per file, the same ids for all ``molecules``.

    Files are numbered from 1.
    """

    name: ClassVar[str] = SPLITTING
    intermediate: ClassVar[bool] = True

    sequences_per_file: int
    molecules: tuple[Molecule, ...] = MOLECULES

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task; how many files it writes is known afterwards."""
        inputs = tuple(map(self.layout.frames, self.molecules))
        params = {"sequences_per_file": self.sequences_per_file}
        sequences = len(inputs) * receipts.outputs("translation")[0].rows
        return [self.whole(inputs, (), params, sequences)]

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Write the files of all molecules."""
        outputs: list[OutputFile] = []
        for molecule in self.molecules:
            records = read_fasta(self.layout.frames(molecule))
            number = 0
            while batch := list(islice(records, self.sequences_per_file)):
                number += 1
                path = self.layout.split(molecule, number)
                outputs.append(self.disk.save(path, fasta_bytes(batch), len(batch)))
                report(len(batch), 0)
        return TaskResult(task, tuple(outputs))


def split_files(receipts: Receipts, layout: Layout, molecule: Molecule) -> list[OutputFile]:
    """Return the split files of one molecule, in the order of their numbers."""
    folder = layout.folder(molecule)
    return [file for file in receipts.outputs(SPLITTING) if file.path.parent == folder]
