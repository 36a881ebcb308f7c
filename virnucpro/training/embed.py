"""Features of a data set: each part is a run of its shards through the encoders."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from virnucpro.contracts import MOLECULES, OutputFile, ReportProgress, Task, TaskResult
from virnucpro.devices import choose_devices
from virnucpro.errors import InputError, UsageError
from virnucpro.events import Show
from virnucpro.formatting import counted
from virnucpro.io.fasta import read_fasta
from virnucpro.run import recipe
from virnucpro.run.prepare import find_encoders
from virnucpro.run.recipe import EmbeddingRun, Recipe
from virnucpro.run.record import update_failure_table, write_run_record
from virnucpro.run.request import check_writable
from virnucpro.run.workers import local_workers
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.stages.base import HostStage
from virnucpro.stages.merging import MergingStage
from virnucpro.stages.splitting import SPLITTING
from virnucpro.store.disk import Disk
from virnucpro.store.hashed import hashed
from virnucpro.store.ledger import Ledger
from virnucpro.store.lock import locked
from virnucpro.store.work import RunState, check_run
from virnucpro.training.data.dataset import PARTS, Dataset
from virnucpro.workers.signals import Interruption


@dataclass(frozen=True)
class ShardsStage(HostStage):
    """Checks the shards and leaves the receipt that splitting would leave.

    The files are its outputs, though it only reads them: when one is changed, the receipt no
    longer proves it, all are checked again, and what was embedded from that file is done again.
    """

    name, title = SPLITTING, "Splitting"

    files: int
    frames: int

    def task(self, ledger: Ledger) -> Task:
        """Return the task of all files of both molecules."""
        params = {"files": self.files, "frames": self.frames}
        return self.whole((), (), params, count=self.frames)

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        """Count, compare and hash; InputError where files are missing or hold other frames."""
        outputs: list[OutputFile] = []
        try:
            for number in range(1, self.files + 1):
                ids = []
                for molecule in MOLECULES:
                    path = self.layout.split(molecule, number)
                    ids.append([name for name, _ in read_fasta(path)])
                    size, digest = path.stat().st_size, hashed(path).sha256
                    outputs.append(OutputFile(path, size, digest, len(ids[-1])))
                if ids[0] != ids[1]:
                    raise ValueError(f"{path} has other frames than the file of nucleotides")
                report(len(ids[0]), 0)
            if (sequences := sum(file.rows for file in outputs)) != len(MOLECULES) * self.frames:
                raise ValueError(f"sequences: {sequences:,}")
        except (OSError, ValueError) as error:
            raise InputError(
                f"the shards of {self.layout.stem} in {self.layout.root} do not hold its "
                f"{self.frames:,} frames ({error}): prepare the data again: virnucpro train prepare"
            ) from error
        return TaskResult(task, tuple(outputs))


def embed(
    dataset: Dataset,
    analysis: AnalysisSettings,
    machine: MachineSettings,
    show: Show,
    interruption: Interruption | None = None,
    *,
    force: bool = False,
    command: Sequence[str] = (),
) -> tuple[list[str], int]:
    """Embed all parts of a data set that have frames, or what is missing of them.

    Returns what became of the parts, in sentences, and the number of frames that failed.
    """
    dataset.require_content("frames")
    disk, sizes = Disk(), dataset.description["parts"]
    layouts = {part: dataset.layout(part) for part in PARTS if dataset.shards(part)}
    devices = choose_devices(machine)
    begun = [] if force else list(layouts.values())
    encoders = find_encoders(analysis, begun, devices, show)
    if "protein" not in encoders.sources:
        raise UsageError(f"{analysis.nucleotide_model} reads whole chunks, and not frames")
    for layout in layouts.values():
        check_writable(layout, force=force)
    lines, failures, computed = [], 0, 0
    with ExitStack() as stack:
        for layout in layouts.values():
            stack.enter_context(locked(layout.lock))
        runs = []
        for part, layout in layouts.items():
            # The shards are known by their receipts.
            state = RunState(str(layout.root), encoders.identity())
            state = check_run(layout, disk, state, show, force=force)
            embedding = encoders.stages(layout, disk, machine)
            shards = ShardsStage(layout, disk, sizes[part]["shards"], sizes[part]["frames"])
            merging = MergingStage(layout, disk, tuple(encoders.sources))
            own = Recipe([shards], embedding, merging)
            runs.append(EmbeddingRun(layout, disk, own.stages, state, show, recipe=own))
        workers = local_workers(devices, machine, interruption)
        stack.callback(workers.close)
        for run in runs:
            recipe.begin(run)
        recipe.embed(runs, workers, show)
        for part, run in zip(layouts, runs, strict=True):
            update_failure_table(run.layout, disk, f"part {part}", run.failures)
            failed = len({name for failure in run.failures for name in failure.ids})
            details = {
                "data_set": hashed(dataset.description_file).sha256,
                "truncation": encoders.truncation,
                "counts": {**sizes[part], "failed": failed},
            }
            write_run_record(run, encoders, devices, command, details)
            run.save_progress(is_finished=not failed)
            failures, computed = failures + failed, computed + run.computed.total()
            frames = counted(sizes[part]["frames"], "frame")
            lines.append(f"{part}: {frames} embedded, {failed:,} of them failed")
    if not computed:
        lines.insert(0, "Nothing to compute: all features are there and intact.")
    return lines, failures
