"""Features of a data set: each part is a run of its shards through the encoders."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from virnucpro.contracts import Molecule
from virnucpro.devices import choose_devices
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import locate
from virnucpro.errors import UsageError
from virnucpro.events import Emit, Notice
from virnucpro.executors.executor import Executor, open_executor
from virnucpro.executors.signals import Interruption
from virnucpro.formatting import counted
from virnucpro.run.engine import execute
from virnucpro.run.prepare import checked_precision
from virnucpro.run.record import update_failure_table, write_record
from virnucpro.run.request import check_writable
from virnucpro.run.run import Run
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.stages.embedding import EncoderSetup
from virnucpro.stages.prediction import MergingStage
from virnucpro.stages.splitting import ShardsStage
from virnucpro.store.disk import Disk, telling
from virnucpro.store.hashed import hashed
from virnucpro.store.lock import locked
from virnucpro.store.work import RunState, check_run
from virnucpro.training.data.dataset import PARTS, Dataset


def embed(
    dataset: Dataset,
    analysis: AnalysisSettings,
    machine: MachineSettings,
    emit: Emit,
    interruption: Interruption | None = None,
    executor: Executor | None = None,
    *,
    force: bool = False,
    command: Sequence[str] = (),
) -> tuple[list[str], int]:
    """Embed all parts of a data set that have frames, or what is missing of them.

    Returns what became of the parts, in sentences, and the number of frames that failed.

    ``executor`` carries out the tasks; None is that of the chosen devices.
    """
    dataset.require_content("frames")
    disk, sizes = Disk(dataset.root), dataset.description["parts"]
    layouts = {part: dataset.layout(part) for part in PARTS if dataset.shards(part)}
    devices = choose_devices(machine)
    nucleotide = locate(analysis.nucleotide_model, "nucleotide")
    if nucleotide.reading != "open frames":
        raise UsageError(f"{nucleotide.name} reads whole chunks: use virnucpro train lite")
    protein = locate(analysis.protein_model, "protein")
    sources: dict[Molecule, EncoderSource] = {"nucleotide": nucleotide, "protein": protein}
    # ``auto`` is what any part was begun with.
    begun = [] if force else list(layouts.values())
    precision = checked_precision(begun, analysis, devices, (nucleotide, protein), emit)
    encoders = EncoderSetup(sources, precision, analysis.truncation)
    for layout in layouts.values():
        check_writable(layout)
    lines, failures, computed = [], 0, 0
    with ExitStack() as stack:
        for layout in layouts.values():
            stack.enter_context(locked(layout.lock))
        stack.enter_context(telling(disk, emit))
        runs = []
        for part, layout in layouts.items():
            # The shards are known by their receipts.
            state = RunState(str(layout.root), encoders.identity(), command="train embed")
            state = check_run(layout, disk, state, emit, resume=False, force=force)
            shards, frames = sizes[part]["shards"], counted(sizes[part]["frames"], "frame")
            emit(Notice("info", f"{part}: {frames} in {counted(shards, 'shard')}"))
            embedding = encoders.stages(layout, disk, machine)
            stages = [
                ShardsStage(layout, disk, shards, sizes[part]["frames"]),
                *embedding,
                MergingStage(layout, disk, {each.molecule: each.params for each in embedding}),
            ]
            size = encoders.bytes_per_frame(keeps_features=True)
            runs.append(Run(layout, disk, stages, state, bytes_per_frame=size))
        executor = executor or open_executor(devices, machine, interruption)
        stack.callback(executor.close)
        execute(runs, executor, emit)
        for part, run in zip(layouts, runs, strict=True):
            update_failure_table(run.layout, disk, f"part {part}", run.failures)
            failed = len({name for failure in run.failures for name in failure.ids})
            details = {
                "data_set": hashed(dataset.description_file).sha256,
                "truncation": encoders.truncation,
                "counts": {**sizes[part], "failed": failed},
            }
            write_record(run, encoders, devices, command, details)
            failures, computed = failures + failed, computed + run.computed.total()
            frames = counted(sizes[part]["frames"], "frame")
            lines.append(f"{part}: {frames} embedded, {failed:,} of them failed")
    if not computed:
        lines.insert(0, "Nothing to compute: all features are there and intact.")
    return lines, failures
