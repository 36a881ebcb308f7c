"""Several inputs in one command: a run for each, and one set of workers for all of them.

The runs go through their stages in groups. The stages of the host are done one run after the
other; an embedding stage is one piece of work for the whole group, so that its model is loaded once
for the group. A sample that cannot be used stops no other.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from virnucpro.errors import (
    InputError,
    LockedError,
    ModelError,
    NothingToResumeError,
    OutputError,
    ResumeRefusedError,
    UsageError,
    VirNucProError,
)
from virnucpro.events import Emit, Event, Notice, StageAhead
from virnucpro.executors.signals import Interruption
from virnucpro.layout import SamplesFolder, existing_paths
from virnucpro.run.engine import (
    Run,
    carry_out_embedding,
    carry_out_stage,
    embedding_positions,
    noted_workers,
)
from virnucpro.run.predict import Summary, admitted_run, finish, model_sizes
from virnucpro.run.prepare import Prediction, prepare
from virnucpro.run.request import PredictionRequest, check_input
from virnucpro.run.sample_list import ListedSample
from virnucpro.run.sample_table import is_own_table, write_table
from virnucpro.run.workers import Workers, opened_workers
from virnucpro.store.disk import Disk
from virnucpro.store.lock import locked
from virnucpro.store.work import ExistingWork, foreign_files_refusal, move_aside

# Of the free space that the features of a group may take. The features of a group exist at the
# same time; those of one sample do so in any case.
GROUP_SHARE = 0.25
# Of a group: each has an open lock file and threads of its own, and many systems allow a process
# only 256 or 1,024 open files.
MOST_SAMPLES = 100
# What is wrong with one input and does not concern the others.
OF_A_SAMPLE = (InputError, ResumeRefusedError, LockedError, NothingToResumeError, UsageError)

SampleState = Literal["finished", "partial", "failed", "unfinished"]


@dataclass(frozen=True)
class NamedInput:
    """An input with the name of its folder."""

    name: str
    request: PredictionRequest


@dataclass(frozen=True)
class SampleOutcome:
    """What became of a sample: the summary of its run, or why there are no results."""

    sample: NamedInput
    state: SampleState = "unfinished"
    summary: Summary | None = None
    error: VirNucProError | None = None

    @property
    def message(self) -> str:
        """Why there are no results, in one line."""
        return " ".join(str(self.error or "").split())


@dataclass(frozen=True)
class BegunSample:
    """A sample whose run is on its way."""

    sample: NamedInput
    prediction: Prediction
    run: Run

    @property
    def disk_need(self) -> int:
        """Bytes that its features take."""
        needs = (stage.disk_need(self.run.ledger) for stage in self.run.stages)
        return sum(need.bytes for need in needs if need)


def predict_samples(
    samples: Sequence[NamedInput],
    root: Path,
    emit: Emit,
    disk: Disk | None = None,
    interruption: Interruption | None = None,
) -> list[SampleOutcome]:
    """Carry out the runs of all samples, or finish what an earlier call left.

    The summary table is written also when the command is interrupted.

    Raises:
        VirNucProError: what concerns all samples; nothing that was finished is lost.
    """
    disk = disk or Disk()
    folder = SamplesFolder(root)
    first = samples[0].request
    with locked(folder.lock, "these samples"):
        _admit_table(folder, disk, force=first.force)
        _write_table(folder, disk, [SampleOutcome(sample) for sample in samples])
        with opened_workers(first.machine, folder.probe, emit, interruption, disk) as workers:
            runs = SampleRuns(samples, workers, disk, emit)
            try:
                runs.carry_out()
            finally:
                _write_table(folder, disk, runs.outcomes)
    errors = [outcome.error for outcome in runs.outcomes]
    if errors[0] and all(isinstance(error, ResumeRefusedError) for error in errors):
        raise errors[0]
    return runs.outcomes


def _write_table(folder: SamplesFolder, disk: Disk, outcomes: Sequence[SampleOutcome]) -> None:
    named = {
        o.sample.name: ListedSample(o.sample.request.source, o.state, o.message) for o in outcomes
    }
    write_table(folder, disk, named)


def _admit_table(folder: SamplesFolder, disk: Disk, *, force: bool) -> None:
    """Refuse to write over a file that is not a summary of samples; with force, move it aside.

    Raises:
        UsageError: there is such a file.
    """
    path = folder.summary_table
    existing = ExistingWork(
        folder.root,
        folder.checkpoints / "samples.previous",
        foreign_files=() if is_own_table(path) else existing_paths(path),
    )
    if force:
        move_aside(existing, disk)
    elif refusal := foreign_files_refusal(existing):
        raise refusal


class SampleRuns:
    """The samples of a command on their way; ``outcomes`` has one for each, in their order."""

    def __init__(
        self, samples: Sequence[NamedInput], workers: Workers, disk: Disk, emit: Emit
    ) -> None:
        self._samples = samples
        self._workers = workers
        self._disk = disk
        self._emit = emit
        self._outcomes = {sample.name: SampleOutcome(sample) for sample in samples}

    @property
    def outcomes(self) -> list[SampleOutcome]:
        """What became of each sample so far."""
        return list(self._outcomes.values())

    def carry_out(self) -> None:
        """Take all samples through their stages, the largest files first.

        Raises:
            VirNucProError: what concerns all samples.
        """
        usable = [sample for sample in self._samples if self._is_usable(sample)]
        if not usable:
            return
        waiting = deque(sorted(usable, key=lambda sample: -_size(sample)))
        requests = [sample.request for sample in waiting]
        prediction = prepare(requests, self._workers.devices, self._disk, self._emit)
        self._workers.require(model_sizes(prediction))
        while waiting:
            with ExitStack() as locks:
                group: list[BegunSample] = []
                room = GROUP_SHARE * shutil.disk_usage(waiting[0].request.layout.root.parent).free
                while (
                    waiting
                    and len(group) < MOST_SAMPLES
                    and sum(begun.disk_need for begun in group) <= room
                ):
                    sample = waiting.popleft()
                    count = len(usable) - len(waiting)
                    text = f"sample {count} of {len(usable)}: {sample.name}"
                    self._emit(Notice("info", text))
                    if begun := self._begin(sample, prediction, locks):
                        group.append(begun)
                self._embed(group)

    def _is_usable(self, sample: NamedInput) -> bool:
        try:
            check_input(sample.request)
        except ModelError:
            raise
        except (*OF_A_SAMPLE, OutputError) as error:  # the folder of the sample is not writable
            self._fail(sample, error)
            return False
        return True

    def _fail(self, sample: NamedInput, error: VirNucProError) -> None:
        self._outcomes[sample.name] = SampleOutcome(sample, "failed", error=error)
        self._emit(Notice("warning", f"sample {sample.name} failed: {error}"))

    def _begin(
        self, sample: NamedInput, prediction: Prediction, locks: ExitStack
    ) -> BegunSample | None:
        """Admit a run and carry out its stages before the embedding; None where that fails."""
        try:
            own = prediction.of(sample.request)
            with ExitStack() as stack:
                emit = self._emit_of(sample)
                run = stack.enter_context(admitted_run(sample.request, own, self._disk, emit))
                # How long the other samples take is not known, but that they do.
                others = (StageAhead("other samples"),) if len(self._samples) > 1 else ()
                run.runs_ahead = others
                run.begin(emit)
                begun = BegunSample(sample, own, run)
                self._on_host(begun, range(embedding_positions(run.stages).start))
                locks.push(stack.pop_all())
                return begun
        except ModelError:
            raise
        except OF_A_SAMPLE as error:
            self._fail(sample, error)
            return None

    def _emit_of(self, sample: NamedInput) -> Emit:
        """Return what passes events on, and names the sample in warnings."""

        def emit(event: Event) -> None:
            if isinstance(event, Notice) and event.level == "warning":
                event = replace(event, message=f"sample {sample.name}: {event.message}")
            self._emit(event)

        return emit

    def _on_host(self, begun: BegunSample, positions: range) -> None:
        emit = self._emit_of(begun.sample)
        workers = noted_workers([begun.run], emit)
        for position in positions:
            carry_out_stage([begun.run], position, self._workers.executor, workers, emit)

    def _embed(self, group: Sequence[BegunSample]) -> None:
        """Embed a group together, and then finish its runs one after the other."""
        if not group:
            return
        runs = [begun.run for begun in group]
        stages = group[0].run.stages
        workers = noted_workers(runs, self._emit)
        carry_out_embedding(runs, self._workers.executor, workers, self._emit)
        for begun in group:
            sample = begun.sample
            try:
                with self._disk.together():
                    self._on_host(begun, range(embedding_positions(stages).stop, len(stages)))
                begun.run.outcome.note_workers(workers)
                summary = finish(
                    sample.request,
                    begun.prediction,
                    begun.run,
                    self._workers.devices,
                    self._emit_of(sample),
                )
            except ModelError:
                raise
            except OF_A_SAMPLE as error:
                self._fail(sample, error)
                continue
            self._outcomes[sample.name] = SampleOutcome(
                sample,
                "partial" if summary.failed_records else "finished",
                summary,
            )


def _size(sample: NamedInput) -> int:
    request = sample.request
    files = filter(None, (request.source, request.mates))
    return sum(Path(file).stat().st_size for file in files)
