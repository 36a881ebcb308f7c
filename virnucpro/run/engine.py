"""The nine stages, and the only loop."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from virnucpro.classifier import ClassifierInfo
from virnucpro.contracts import Executor, FailedTask, Stage, Task, TaskResult
from virnucpro.encoders.family import EncoderSource
from virnucpro.errors import OutputError
from virnucpro.events import Event, FileFinished, Notice, StageFinished, StageStarted
from virnucpro.formatting import byte_size
from virnucpro.layout import MOLECULES, Layout
from virnucpro.run.spans import Spans
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.stages.chunking import ChunkingStage, Stamp
from virnucpro.stages.consensus import ConsensusStage
from virnucpro.stages.embedding import EmbeddingStage
from virnucpro.stages.merging import MergingStage
from virnucpro.stages.output import OutputStage
from virnucpro.stages.prediction import PredictionStage
from virnucpro.stages.splitting import SplittingStage
from virnucpro.stages.translation import TranslationStage
from virnucpro.store import legacy
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger

Emit = Callable[[Event], None]

BYTES_A_NUMBER = 4  # features are float32
BYTES_AN_ID = 64  # a frame's id in a feature file, on average, with its share of the file's frame
AFTER_FEATURES = ("prediction", "consensus", "output")


class Work(Protocol):
    """What the loop has to know of a run: its stages, and where and with what they embed."""

    @property
    def layout(self) -> Layout:
        """Every path of the run."""
        ...

    @property
    def disk(self) -> Disk:
        """What writes."""
        ...

    @property
    def nucleotide(self) -> EncoderSource:
        """The encoder of nucleotides."""
        ...

    @property
    def protein(self) -> EncoderSource:
        """The encoder of proteins."""
        ...

    @property
    def stages(self) -> list[Stage]:
        """All stages, in order."""
        ...


@dataclass(frozen=True)
class Job:
    """Everything that a prediction needs, found and checked before it starts.

    ``seen`` is the stamp of the source from before its digest was taken: a stage that reads it
    commits nothing when it is another one afterwards. ``budgets`` are those that an earlier start
    measured, see ``checkpoint.state``.
    """

    source: Path
    layout: Layout
    analysis: AnalysisSettings
    machine: MachineSettings
    precision: str
    nucleotide: EncoderSource
    protein: EncoderSource
    classifier: ClassifierInfo
    disk: Disk = field(default_factory=Disk)
    budgets: Mapping[str, int] = field(default_factory=dict)
    seen: Stamp = (0, 0)

    @property
    def stages(self) -> list[Stage]:
        """The nine stages, in order."""
        layout, disk, analysis, machine = self.layout, self.disk, self.analysis, self.machine
        cut = (self.precision, analysis.truncation)
        frames, residues = machine.dnabert_sequences, machine.esm_tokens
        kept = (self.budgets, machine.compile)
        classifier = (self.classifier.path, self.classifier.sha256)
        shortest = min(self.classifier.chunk_lengths or (layout.chunk_length,))
        return [
            ChunkingStage(layout, disk, self.source, self.seen, analysis.duplicate_ids, shortest),
            TranslationStage(layout, disk),
            SplittingStage(layout, disk, analysis.sequences_per_file),
            EmbeddingStage(layout, disk, "nucleotide", self.nucleotide, *cut, frames, *kept),
            EmbeddingStage(layout, disk, "protein", self.protein, *cut, residues, *kept),
            MergingStage(layout, disk),
            PredictionStage(layout, disk, *classifier, machine.classifier_rows),
            ConsensusStage(layout, disk),
            OutputStage(
                layout, disk, self.source, self.seen, self.classifier.temperature is not None
            ),
        ]


@dataclass
class RunOutcome:
    """What a run did: seconds and tasks a stage, sequences that failed.

    ``host_wait`` are the seconds, summed over workers, in which a device waited for tokens.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    host_wait: dict[str, float] = field(default_factory=dict)
    computed: Counter[str] = field(default_factory=Counter)
    failed: list[FailedTask] = field(default_factory=list)

    def add(self, stage: str, result: TaskResult | FailedTask) -> None:
        """Count what came back from the executor."""
        self.computed[stage] += 1
        if isinstance(result, FailedTask):
            self.failed.append(result)
        elif "host_wait" in result.facts:
            self.host_wait[stage] = self.host_wait.get(stage, 0.0) + result.facts["host_wait"]


def run(job: Work, ledger: Ledger, executor: Executor, emit: Emit) -> RunOutcome:
    """Bring every stage up to date.

    Raises:
        VirNucProError: whatever ends a run; what was committed before stays valid.
    """
    outcome = RunOutcome()
    stages = job.stages
    if ledger.cleaned and (reason := _lost_proof(stages, ledger)):
        text = "the intermediate files of the finished run, since removed, are needed again"
        emit(Notice("warning", f"{text}: {reason}"))
        ledger.distrust_removed()
    for number, stage in enumerate(stages, 1):
        started = time.perf_counter()
        tasks = stage.plan(ledger)
        verdicts = [ledger.check(task) for task in tasks]
        stale = [task for task, verdict in zip(tasks, verdicts, strict=True) if verdict.stale]
        reasons = Counter(v.reason for v in verdicts if v.stale and v.reason != "no receipt")
        if isinstance(stage, EmbeddingStage):
            stage = stage.of(tasks)
            stale, warnings = legacy.adopt(
                job.layout, ledger, stale, stage.molecule, stage.source.dim
            )
            for warning in warnings:
                emit(Notice("warning", warning))
        if stale and stage.kind == "gpu":
            _check_space(job, ledger, emit, announce=not outcome.computed["dnabert"])
        with Spans(stage, stale, ledger, job.disk) as spans:
            emit(_started(stage, (number, len(stages)), tasks, spans, reasons))
            for result in executor.run(stage, spans.todo, emit):
                _finished(stage, spans.add(result), emit)
                outcome.add(stage.name, result)
            _finished(stage, spans.rest(), emit)
        for task in tasks:
            for notice in ledger.facts(task.receipt).get("notices", ()):
                emit(Notice("warning", notice))
        outcome.seconds[stage.name] = time.perf_counter() - started
        emit(StageFinished(stage.name, number, outcome.seconds[stage.name]))
    return outcome


def _started(
    stage: Stage, place: tuple[int, int], tasks: list[Task], spans: Spans, reasons: Counter[str]
) -> StageStarted:
    todo = spans.todo
    number, stages = place
    sequences = sum(task.count for task in todo)
    tokens = sum(task.weight for task in todo)
    why = tuple(f"{reason} ({n}x)" for reason, n in reasons.most_common(3))
    return StageStarted(
        stage.name, number, len(tasks), len(todo), sequences, tokens, why, spans.files, stages
    )


def _finished(stage: Stage, whole: list[Task], emit: Emit) -> None:
    for task in whole:
        emit(FileFinished(stage.name, task))


def _lost_proof(stages: Sequence[Stage], ledger: Ledger) -> str | None:
    """Why what is left of a finished run does not suffice, or None where it does.

    After the features are gone only the stages behind them can be done again, and only where
    their inputs are still there.
    """
    for stage in stages:
        verdicts = [(task, ledger.check(task)) for task in stage.plan(ledger)]
        stale = [(task, verdict) for task, verdict in verdicts if verdict.stale]
        if stale:
            there = all(path.exists() for task, _ in stale for path in task.inputs)
            return None if stage.name in AFTER_FEATURES and there else stale[0][1].reason
    return None


def _check_space(job: Work, ledger: Ledger, emit: Emit, *, announce: bool) -> None:
    """Say how much is to be embedded, and stop now if the disk cannot hold it.

    Raises:
        OutputError: too little space for the features (exit 6).
    """
    frames = sum(file.rows for file in ledger.outputs("splitting")) // len(MOLECULES)
    a_frame = (job.nucleotide.dim + job.protein.dim) * BYTES_A_NUMBER + BYTES_AN_ID
    present = sum(path.stat().st_size for path in job.layout.feature_files())
    needed = max(0, 2 * frames * a_frame - present)  # once as features, once merged
    free = shutil.disk_usage(job.layout.root).free
    if announce:
        size = byte_size(2 * frames * a_frame)
        text = f"{frames:,} open frames to embed; their features take {size}"
        emit(Notice("info", f"{text} ({byte_size(free)} are free)"))
    if needed > free:
        raise OutputError(
            f"{job.layout.root} has {byte_size(free)} free, the features of {frames:,} frames "
            f"still take {byte_size(needed)}: free some space or move the folder, then run the "
            f"same command with --resume"
        )


def remove_intermediate(job: Job, ledger: Ledger) -> None:
    """Delete what only the run itself needed: chunks, frames, features. Receipts stay as proof."""
    layout = job.layout
    keep = frozenset({layout.records_table, layout.frames_table})
    passing = ("chunking", "translation", "splitting", "dnabert", "esm", "merging")
    ledger.remove(ledger.receipts(*passing), keep)
    job.disk.remove_folder(layout.folder("nucleotide"))
    job.disk.remove_folder(layout.folder("protein"))
