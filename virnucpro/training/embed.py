"""Features of a data set: each part is a run of its shards through the encoders."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from virnucpro.contracts import Device
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
from virnucpro.run.run import Run, checked_state
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.stages.embedding import EncoderSetup
from virnucpro.stages.prediction import MergingStage
from virnucpro.stages.splitting import ShardsStage
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.lock import locked
from virnucpro.store.work import RunState
from virnucpro.training.data.dataset import PARTS, Dataset, Part


@dataclass(frozen=True)
class EmbedRequest:
    """What the user asked for. ``parts``: None for all that have frames."""

    dataset: Path
    analysis: AnalysisSettings
    machine: MachineSettings
    parts: tuple[Part, ...] | None = None
    force: bool = False
    resume: bool = False
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class EmbeddedPart:
    """What became of a part: frames, those among them that failed, and tasks of this start."""

    part: str
    frames: int
    failed: int
    computed: int


def embed(
    request: EmbedRequest,
    emit: Emit,
    interruption: Interruption | None = None,
    executor: Executor | None = None,
) -> list[EmbeddedPart]:
    """Embed a data set, or what is missing of it.

    ``executor`` carries out the tasks; None is that of the chosen devices.
    """
    disk, dataset = Disk(), Dataset(request.dataset.absolute())
    parts = _chosen_parts(dataset, request.parts)
    layouts = [dataset.layout(part) for part in parts]
    devices = choose_devices(request.machine, visible_gpus())
    encoders = _encoders(request, dataset, devices, emit)
    for layout in layouts:
        check_writable(layout)
    with ExitStack() as stack:
        for layout in layouts:
            stack.enter_context(locked(layout.lock))
        runs = []
        for part, layout in zip(parts, layouts, strict=True):
            # The shards are known by their receipts.
            state = RunState(str(layout.root), encoders.identity())
            state = checked_state(
                layout, disk, state, emit, resume=request.resume, force=request.force
            )
            shards, frames = dataset.shards(part), dataset.description["parts"][part]["frames"]
            emit(Notice("info", f"{layout.stem}: {frames:,} frames in {counted(shards, 'shard')}"))
            stages = [
                ShardsStage(layout, disk, shards, frames),
                *encoders.stages(layout, disk, request.machine),
                MergingStage(layout, disk),
            ]
            runs.append(Run(layout, disk, stages, state, command="train embed"))
        executor = executor or open_executor(devices, request.machine, interruption)
        stack.callback(executor.close)
        execute(runs, executor, emit)
        return [
            _recorded(part, run, dataset, encoders, devices, request.command)
            for part, run in zip(parts, runs, strict=True)
        ]


def _recorded(
    part: Part,
    run: Run,
    dataset: Dataset,
    encoders: EncoderSetup,
    devices: Sequence[Device],
    command: Sequence[str],
) -> EmbeddedPart:
    """Write the failures and the record of a part that was embedded."""
    failures, stem = run.failures, run.layout.stem
    update_failure_table(run.layout, run.disk, f"part {stem}", failures)
    failed = len({name for failure in failures for name in failure.ids})
    frames = dataset.description["parts"][part]["frames"]
    details = {
        "data_set": sha256_of(dataset.description_file),
        "truncation": encoders.truncation,
        "counts": {"shards": dataset.shards(part), "frames": frames, "failed": failed},
    }
    lasting = ("data_set", "models", "truncation", "precision", "counts")
    write_record(run, encoders, devices, command, lasting, details)
    return EmbeddedPart(stem, frames, failed, run.computed.total())


def _chosen_parts(dataset: Dataset, requested: Sequence[Part] | None) -> list[Part]:
    """Return the requested parts, or all that have frames."""
    dataset.require_content("frames")
    for part in requested or ():
        if not dataset.shards(part):
            raise UsageError(
                f"{dataset.root} has no frames of part {part}: leave it out of --parts"
            )
    return [part for part in PARTS if part in (requested or PARTS) and dataset.shards(part)]


def _encoders(
    request: EmbedRequest, dataset: Dataset, devices: Sequence[Device], emit: Emit
) -> EncoderSetup:
    """Find the encoders, and the precision: ``auto`` is what any part was begun with."""
    analysis = request.analysis
    nucleotide = locate(analysis.nucleotide_model, "nucleotide")
    if nucleotide.reading != "open frames":
        raise UsageError(
            f"{nucleotide.name} reads whole chunks, but a data set has open frames: such encoders "
            f"are trained together with their classifier, by virnucpro train lite"
        )
    protein = locate(analysis.protein_model, "protein")
    layouts = [] if request.force else [dataset.layout(part) for part in PARTS]
    precision = checked_precision(layouts, analysis, devices, (nucleotide, protein), emit)
    sources: dict[Molecule, EncoderSource] = {"nucleotide": nucleotide, "protein": protein}
    return EncoderSetup(sources, precision, analysis.truncation)
