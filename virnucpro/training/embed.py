"""Features of a data set: each part is a run of its shards through the encoders."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from virnucpro.devices import choose_devices, visible_gpus
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import locate
from virnucpro.errors import UsageError
from virnucpro.events import Emit, Notice
from virnucpro.executors.executor import Executor, open_executor
from virnucpro.executors.signals import Interruption
from virnucpro.formatting import counted
from virnucpro.layout import Molecule
from virnucpro.run.engine import execute
from virnucpro.run.prepare import checked_precision
from virnucpro.run.record import update_failure_table, write_record
from virnucpro.run.request import check_writable
from virnucpro.run.run import Run
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.stages.embedding import EncoderSetup
from virnucpro.stages.prediction import MergingStage
from virnucpro.stages.splitting import ShardsStage
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.lock import locked
from virnucpro.store.work import RunState, check_run
from virnucpro.training.data.dataset import PARTS, Dataset


class EmbeddedPart(NamedTuple):
    """What became of a part: frames, those among them that failed, and tasks of this start."""

    part: str
    frames: int
    failed: int
    computed: int


def embed(
    dataset: Dataset,
    analysis: AnalysisSettings,
    machine: MachineSettings,
    emit: Emit,
    interruption: Interruption | None = None,
    executor: Executor | None = None,
    *,
    force: bool = False,
    resume: bool = False,
    command: Sequence[str] = (),
) -> list[EmbeddedPart]:
    """Embed all parts of a data set that have frames, or what is missing of them.

    ``executor`` carries out the tasks; None is that of the chosen devices.
    """
    dataset.require_content("frames")
    disk, facts = Disk(), dataset.description["parts"]
    layouts = {part: dataset.layout(part) for part in PARTS if dataset.shards(part)}
    devices = choose_devices(machine, visible_gpus())
    nucleotide = locate(analysis.nucleotide_model, "nucleotide")
    if nucleotide.reading != "open frames":
        raise UsageError(
            f"{nucleotide.name} reads whole chunks, but a data set has open frames: such encoders "
            f"are trained together with their classifier, by virnucpro train lite"
        )
    protein = locate(analysis.protein_model, "protein")
    sources: dict[Molecule, EncoderSource] = {"nucleotide": nucleotide, "protein": protein}
    # ``auto`` is what any part was begun with.
    begun = [] if force else list(layouts.values())
    precision = checked_precision(begun, analysis, devices, (nucleotide, protein), emit)
    encoders = EncoderSetup(sources, precision, analysis.truncation)
    for layout in layouts.values():
        check_writable(layout)
    results = []
    with ExitStack() as stack:
        for layout in layouts.values():
            stack.enter_context(locked(layout.lock))
        runs = []
        for part, layout in layouts.items():
            # The shards are known by their receipts.
            state = RunState(str(layout.root), encoders.identity())
            state = check_run(layout, disk, state, emit, resume=resume, force=force)
            shards, frames = facts[part]["shards"], facts[part]["frames"]
            emit(
                Notice("info", f"{part}: {counted(frames, 'frame')} in {counted(shards, 'shard')}")
            )
            stages = [
                ShardsStage(layout, disk, shards, frames),
                *encoders.stages(layout, disk, machine),
                MergingStage(layout, disk),
            ]
            runs.append(Run(layout, disk, stages, state, command="train embed"))
        executor = executor or open_executor(devices, machine, interruption)
        stack.callback(executor.close)
        execute(runs, executor, emit)
        for part, run in zip(layouts, runs, strict=True):
            update_failure_table(run.layout, disk, f"part {part}", run.failures)
            failed = len({name for failure in run.failures for name in failure.ids})
            shards, frames = facts[part]["shards"], facts[part]["frames"]
            details = {
                "data_set": sha256_of(dataset.description_file),
                "truncation": encoders.truncation,
                "counts": {"shards": shards, "frames": frames, "failed": failed},
            }
            write_record(run, encoders, devices, command, details)
            results.append(EmbeddedPart(part, frames, failed, run.computed.total()))
    return results
