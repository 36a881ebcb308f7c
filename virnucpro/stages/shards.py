"""The split files of a data set, which exist before it is embedded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from virnucpro.contracts import SPLITTING, OutputFile, Receipts, ReportProgress, Task, TaskResult
from virnucpro.errors import InputError
from virnucpro.io.fasta import read_fasta
from virnucpro.layout import MOLECULES
from virnucpro.stages.base import HostStage
from virnucpro.store.disk import sha256_of


@dataclass(frozen=True)
class ShardsStage(HostStage):
    """Checks the shards and leaves the receipt that splitting would leave.

    The files are its outputs, though it only reads them: when one is changed, the receipt no
    longer proves it, all are checked again, and what was embedded from that file is done again.
    """

    name: ClassVar[str] = SPLITTING

    files: int
    frames: int

    def plan(self, receipts: Receipts) -> list[Task]:
        """Return one task for all files of both molecules."""
        params = {"files": self.files, "frames": self.frames}
        return [self.whole((), (), params, count=self.frames)]

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Count, compare and hash; InputError where files are missing or hold other frames."""
        outputs: list[OutputFile] = []
        try:
            for number in range(1, self.files + 1):
                ids = []
                for molecule in MOLECULES:
                    path = self.layout.split(molecule, number)
                    ids.append([name for name, _ in read_fasta(path)])
                    size, digest = path.stat().st_size, sha256_of(path)
                    outputs.append(OutputFile(path, size, digest, len(ids[-1])))
                if ids[0] != ids[1]:
                    raise ValueError(f"{path} has other frames than the file of nucleotides")
                report(len(ids[0]), 0)
            if (counted := sum(file.rows for file in outputs)) != len(MOLECULES) * self.frames:
                raise ValueError(f"{counted:,} sequences are there")
        except (OSError, ValueError) as error:
            raise InputError(
                f"the shards of {self.layout.stem} in {self.layout.root} do not hold its "
                f"{self.frames:,} frames ({error}): prepare the data again: virnucpro train prepare"
            ) from error
        return TaskResult(task, tuple(outputs))
