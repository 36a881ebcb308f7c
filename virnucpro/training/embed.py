"""Features of a data set: each part is a run of its shards through the encoders."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from virnucpro.contracts import Device
from virnucpro.devices import choose_devices, mask_warning, visible_gpus
from virnucpro.encoders.registry import cautions, check_precision, locate
from virnucpro.errors import ResumeRefusedError, UsageError
from virnucpro.events import Emit, Notice, StageAhead
from virnucpro.executors.executor import Executor, open_executor
from virnucpro.executors.signals import Interruption
from virnucpro.formatting import counted
from virnucpro.layout import Molecule
from virnucpro.precision import choose_precision, emulation_warnings
from virnucpro.run.engine import Run, checked_state, execute
from virnucpro.run.failures import update_failure_table
from virnucpro.run.files import tidy_up
from virnucpro.run.prepare import ignored_by, requested_precision
from virnucpro.run.record import run_record, write_record
from virnucpro.run.request import check_writable
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.stages.embedding import EmbeddingStage, EncoderSetup
from virnucpro.stages.merging import MergingStage
from virnucpro.stages.shards import ShardsStage
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.lock import locked
from virnucpro.store.state import RunState, read_state
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
    disk: Disk | None = None,
    interruption: Interruption | None = None,
    executor: Executor | None = None,
) -> list[EmbeddedPart]:
    """Embed a data set, or what is missing of it.

    ``executor`` carries out the tasks; None is that of the chosen devices.
    """
    disk = disk or Disk()
    dataset = Dataset(request.dataset.absolute())
    parts = _chosen_parts(dataset, request.parts)
    layouts = [dataset.layout(part) for part in parts]
    devices = choose_devices(request.machine, visible_gpus())
    if devices[0].kind == "cuda" and (warning := mask_warning()):
        emit(Notice("warning", warning))
    encoders = _encoders(request, dataset, devices)
    for layout in layouts:
        check_writable(layout)
    sources = tuple(encoders.sources.values())
    for text in (
        *cautions(sources),
        *ignored_by(sources, request.analysis, request.machine),
        *emulation_warnings(encoders.precision, devices),
    ):
        emit(Notice("warning", text))
    with ExitStack() as stack:
        for layout in layouts:
            stack.enter_context(locked(layout.lock))
        _refuse_mixture(dataset, parts, encoders)
        runs = []
        for part, layout in zip(parts, layouts, strict=True):
            # The shards are known by their receipts.
            state = RunState(str(layout.root), encoders.identity())
            state = checked_state(
                layout, disk, state, emit, resume=request.resume, force=request.force
            )
            runs.append((part, Run(layout, disk, (), state, command="train embed")))
        executor = executor or open_executor(devices, request.machine, interruption)
        stack.callback(executor.close)
        budgets: dict[str, int] = {}
        embedded = []
        for position, (part, run) in enumerate(runs):
            layout, state = run.layout, run.state
            state = replace(state, budgets={**budgets, **state.budgets})
            shards, frames = dataset.shards(part), dataset.description["parts"][part]["frames"]
            stages = [
                ShardsStage(layout, disk, shards, frames),
                *encoders.stages(layout, disk, request.machine, state.budgets),
                MergingStage(layout, disk),
            ]
            run = replace(
                run,
                stages=stages,
                state=state,
                stages_before=position * len(stages),
                stages_in_all=len(runs) * len(stages),
                runs_ahead=tuple(
                    StageAhead(stage.name, _frames_to_embed(later, dataset, stage.molecule))
                    for later, _ in runs[position + 1 :]
                    for stage in stages
                    if isinstance(stage, EmbeddingStage)
                ),
            )
            emit(Notice("info", f"{layout.stem}: {frames:,} frames in {counted(shards, 'shard')}"))
            budgets.update(execute(run, executor, emit).budgets)
            embedded.append(_recorded(part, run, dataset, encoders, devices, request.command))
    return embedded


def _recorded(
    part: Part,
    run: Run,
    dataset: Dataset,
    encoders: EncoderSetup,
    devices: Sequence[Device],
    command: Sequence[str],
) -> EmbeddedPart:
    """Write the failures and the record of a part that was embedded, and tidy up."""
    outcome, layout, disk = run.outcome, run.layout, run.disk
    update_failure_table(layout, disk, f"part {layout.stem}", outcome.failures)
    failed = len({name for failure in outcome.failures for name in failure.ids})
    frames = dataset.description["parts"][part]["frames"]
    record = run_record(
        outcome,
        encoders,
        devices,
        command,
        data_set=sha256_of(dataset.description_file),
        truncation=encoders.truncation,
        counts={"shards": dataset.shards(part), "frames": frames, "failed": failed},
    )
    computed = outcome.computed.total()
    lasting = ("data_set", "models", "truncation", "precision", "counts")
    write_record(layout, disk, record, lasting, computed=computed > 0)
    if not failed:
        tidy_up(layout, disk, run.stages, run.ledger, keep_intermediate=True)
    return EmbeddedPart(layout.stem, frames, failed, computed)


def _chosen_parts(dataset: Dataset, requested: Sequence[Part] | None) -> list[Part]:
    """Return the requested parts, or all that have frames."""
    dataset.require_content("frames")
    existing: list[Part] = [part for part in PARTS if dataset.shards(part)]
    for part in requested or ():
        if part not in existing:
            raise UsageError(
                f"{dataset.root} has no frames of part {part}: leave it out of --parts"
            )
    chosen = [part for part in existing if requested is None or part in requested]
    if not chosen:
        raise UsageError(f"{dataset.root} has no frames: make it with virnucpro train prepare")
    return chosen


def _frames_to_embed(part: Part, dataset: Dataset, molecule: Molecule) -> int:
    """Return about how many frames of a part have no features yet."""
    layout, shards = dataset.layout(part), dataset.shards(part)
    existing = sum(layout.features(molecule, n + 1).exists() for n in range(shards))
    frames: int = dataset.description["parts"][part]["frames"]
    return round(frames * (shards - existing) / shards)


def _encoders(request: EmbedRequest, dataset: Dataset, devices: Sequence[Device]) -> EncoderSetup:
    """Find the encoders, and the precision: ``auto`` is what any part was begun with."""
    analysis = request.analysis
    requested: str = analysis.precision
    if not request.force:
        for part in PARTS:
            requested = requested_precision(dataset.layout(part), requested)
    precision = choose_precision(requested, devices)
    nucleotide = locate(analysis.nucleotide_model, "nucleotide")
    if nucleotide.reading != "open frames":
        raise UsageError(
            f"{nucleotide.name} reads whole chunks, but a data set has open frames: such encoders "
            f"are trained together with their classifier, by virnucpro train lite"
        )
    protein = locate(analysis.protein_model, "protein")
    check_precision(precision, nucleotide, protein)
    return EncoderSetup(nucleotide, protein, precision, analysis.truncation)


def _refuse_mixture(dataset: Dataset, parts: Sequence[Part], encoders: EncoderSetup) -> None:
    """Check that a part which is not embedded now was embedded with the same models."""
    identity = encoders.identity()
    for part in PARTS:
        earlier = None if part in parts else read_state(dataset.layout(part))
        if earlier is None:
            continue
        changed = [name for name in identity if earlier.analysis.get(name) != identity[name]]
        if changed:
            raise ResumeRefusedError(
                f"part {part} of {dataset.root} was embedded with another {' and '.join(changed)}: "
                f"use the same, or embed all parts anew (leave out --parts, add --force)"
            )
