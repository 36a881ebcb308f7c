"""Features of a data set: its shards through the encoders, with the loop and workers of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from virnucpro.contracts import Device, Executor, Json, Stage
from virnucpro.devices import choose_devices, visible_gpus
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import cautions, check_precision, locate
from virnucpro.errors import ResumeRefusedError, UsageError
from virnucpro.events import Event, Notice, StageFinished, StageStarted
from virnucpro.executors.executor import open_executor
from virnucpro.executors.signals import Interruption
from virnucpro.layout import Layout
from virnucpro.precision import choose_precision
from virnucpro.run.accounting import circumstances, device_facts, encoder_facts
from virnucpro.run.engine import run
from virnucpro.run.failures import failures, record_table
from virnucpro.run.predict import sweep
from virnucpro.run.prepare import check_writable, ignored_by, precision_of
from virnucpro.run.worker_reports import Workers
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.stages.embedding import EmbeddingStage
from virnucpro.stages.merging import MergingStage
from virnucpro.stages.shards import ShardsStage
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.ledger import Ledger
from virnucpro.store.lock import locked
from virnucpro.store.state import RunState, admit_run, read_state, write_state
from virnucpro.training.data.dataset import PARTS, Dataset, Part, read_embedding_record

Emit = Callable[[Event], None]


@dataclass(frozen=True)
class EmbedRequest:
    """What the user asked for. ``parts``: None for all that have frames."""

    dataset: Path
    analysis: AnalysisSettings
    machine: MachineSettings
    parts: tuple[Part, ...] | None = None
    resume: bool = False
    force: bool = False
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartJob:
    """One part of a data set, ready to be embedded. A :class:`virnucpro.run.engine.Work`."""

    layout: Layout
    disk: Disk
    machine: MachineSettings
    precision: str
    truncation: int
    nucleotide: EncoderSource
    protein: EncoderSource
    shards: int
    frames: int
    budgets: Mapping[str, int] = field(default_factory=dict)

    @property
    def stages(self) -> list[Stage]:
        """Taking stock, both encoders, and their features side by side."""
        layout, disk, machine = self.layout, self.disk, self.machine
        cut = (self.precision, self.truncation)
        frames, residues = machine.dnabert_sequences, machine.esm_tokens
        kept = (self.budgets, machine.compile)
        return [
            ShardsStage(layout, disk, self.shards, self.frames),
            EmbeddingStage(layout, disk, "nucleotide", self.nucleotide, *cut, frames, *kept),
            EmbeddingStage(layout, disk, "protein", self.protein, *cut, residues, *kept),
            MergingStage(layout, disk),
        ]

    @property
    def state(self) -> RunState:
        """What the features depend on, beside the shards: those are known by their receipts."""
        return RunState(
            str(self.layout.root),
            {
                "nucleotide model": self.nucleotide.sha256,
                "protein model": self.protein.sha256,
                "truncation": self.truncation,
                "precision": self.precision,
            },
            self.budgets,
        )


@dataclass(frozen=True)
class Embedded:
    """What became of a part: frames, those among them that failed, and tasks done this time."""

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
) -> list[Embedded]:
    """Embed a data set, or what is missing of it.

    ``executor`` carries out the tasks; None is that of the chosen devices.

    Raises:
        VirNucProError: see ``virnucpro.errors``; nothing that was finished is lost.
    """
    disk = disk or Disk()
    dataset = Dataset(request.dataset.absolute())
    parts = _parts(dataset, request.parts)
    devices = choose_devices(request.machine, visible_gpus())
    jobs = _jobs(request, dataset, parts, devices, disk)
    sources = (jobs[0].nucleotide, jobs[0].protein)
    for text in (*cautions(sources), *ignored_by(sources, request.analysis, request.machine)):
        emit(Notice("warning", text))
    with ExitStack() as stack:
        for job in jobs:
            stack.enter_context(locked(job.layout.lock))
        _refuse_mixture(dataset, jobs)
        jobs = [_admitted(job, request, emit) for job in jobs]
        executor = executor or open_executor(devices, request.machine, interruption)
        stack.callback(executor.close)
        budgets: dict[str, int] = {}
        results = []
        for place, job in enumerate(jobs):
            job = replace(job, budgets={**budgets, **job.budgets})
            shown = _numbered(emit, place * len(job.stages), len(jobs) * len(job.stages))
            results.append(_embed_part(job, dataset, request, executor, devices, shown, budgets))
    return results


def _parts(dataset: Dataset, wanted: Sequence[Part] | None) -> list[Part]:
    """Those asked for, or all that have frames.

    Raises:
        UsageError: one that was asked for has none, or none has any.
    """
    there: list[Part] = [part for part in PARTS if dataset.shards(part)]
    for part in wanted or ():
        if part not in there:
            raise UsageError(
                f"{dataset.root} has no frames of part {part}: leave it out of --parts"
            )
    chosen = [part for part in there if wanted is None or part in wanted]
    if not chosen:
        raise UsageError(f"{dataset.root} has no frames: make it with virnucpro train prepare")
    return chosen


def _jobs(
    request: EmbedRequest,
    dataset: Dataset,
    parts: Sequence[Part],
    devices: Sequence[Device],
    disk: Disk,
) -> list[PartJob]:
    """Everything found and checked, before anything is written."""
    analysis = request.analysis
    wanted: str = analysis.precision
    if request.resume or not request.force:
        for part in PARTS:  # auto is what any part was begun with
            wanted = precision_of(dataset.layout(part), wanted, force=request.force)
    precision = choose_precision(wanted, devices)
    nucleotide = locate(analysis.nucleotide_model, "nucleotide")
    protein = locate(analysis.protein_model, "protein")
    check_precision(precision, nucleotide, protein)
    facts = dataset.description()["parts"]
    jobs = []
    for part in parts:
        layout = dataset.layout(part)
        check_writable(layout)
        sizes = (dataset.shards(part), int(facts[part]["frames"]))
        how = (precision, analysis.truncation, nucleotide, protein)
        jobs.append(PartJob(layout, disk, request.machine, *how, *sizes))
    return jobs


def _refuse_mixture(dataset: Dataset, jobs: Sequence[PartJob]) -> None:
    """See that a part which is not embedded now was embedded with the same models.

    Raises:
        ResumeRefused: it was not: no classifier could be trained on the two.
    """
    wanted = jobs[0].state.analysis
    for part in PARTS:
        layout = dataset.layout(part)
        if layout.stem in {job.layout.stem for job in jobs}:
            continue
        earlier = read_state(layout)
        if earlier is None:
            continue
        changed = [name for name in wanted if earlier.analysis.get(name) != wanted[name]]
        if changed:
            raise ResumeRefusedError(
                f"part {part} of {dataset.root} was embedded with another {' and '.join(changed)}: "
                f"use the same, or embed all parts anew (leave out --parts, add --force)"
            )


def _admitted(job: PartJob, request: EmbedRequest, emit: Emit) -> PartJob:
    """``job`` with the batch budgets of an earlier start; its state is on the disk.

    Raises:
        ResumeRefused: what is there was made with other models.
    """
    admission = admit_run(
        job.layout, job.disk, job.state, resume=request.resume, force=request.force
    )
    if admission.notice:
        emit(Notice("info", admission.notice))
    earlier = read_state(job.layout)  # None where it was moved aside just now
    job = replace(job, budgets=earlier.budgets if earlier else {})
    write_state(job.layout, job.disk, job.state)
    return job


def _numbered(emit: Emit, before: int, stages: int) -> Emit:
    """``emit`` with the stages of one part counted among those of all parts."""

    def shown(event: Event) -> None:
        if isinstance(event, StageStarted):
            event = replace(event, number=event.number + before, stages=stages)
        elif isinstance(event, StageFinished):
            event = replace(event, number=event.number + before)
        emit(event)

    return shown


def _embed_part(
    job: PartJob,
    dataset: Dataset,
    request: EmbedRequest,
    executor: Executor,
    devices: Sequence[Device],
    emit: Emit,
    budgets: dict[str, int],
) -> Embedded:
    """One part from start to end; ``budgets`` takes up what its workers measured."""
    layout, disk = job.layout, job.disk
    emit(Notice("info", f"{layout.stem}: {job.frames:,} frames in {job.shards:,} shards"))
    sweep(layout, disk)
    ledger = Ledger(layout, disk, {})

    def keep(found: Mapping[str, int]) -> None:
        budgets.update(found)
        write_state(layout, disk, replace(job.state, budgets=found))

    workers = Workers(job.budgets, keep, emit)
    outcome = run(job, ledger, executor, workers.show)
    found = failures(ledger)
    record_table(layout, disk, f"part {layout.stem}", found)
    failed = len({name for failure in found for name in failure.ids})
    document = {
        **circumstances(request.command),
        "data_set": sha256_of(dataset.description_file),
        "models": {
            "nucleotide": encoder_facts(job.nucleotide),
            "protein": encoder_facts(job.protein),
        },
        "truncation": job.truncation,
        "precision": job.precision,
        "counts": {"shards": job.shards, "frames": job.frames, "failed": failed},
        "devices": [device_facts(device) for device in devices],
        "workers": workers.table(),
        "seconds": {name: round(s, 3) for name, s in outcome.seconds.items()},
    }
    _record(layout, disk, document, computed=bool(outcome.computed))
    if not failed:
        for folder in layout.part_folders():  # of files that were joined just before a kill
            disk.remove_tree(folder)
    return Embedded(layout.stem, job.frames, failed, outcome.computed.total())


def _record(layout: Layout, disk: Disk, document: dict[str, Json], *, computed: bool) -> None:
    """Write ``PART_run.json``, unless nothing was done and it says the same already."""
    lasting = ("data_set", "models", "truncation", "precision", "counts")
    there = read_embedding_record(layout)
    if computed or there is None or any(there.get(key) != document[key] for key in lasting):
        disk.save(layout.run_json, (json.dumps(document, indent=1) + "\n").encode())
