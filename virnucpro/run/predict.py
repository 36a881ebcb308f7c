"""One prediction from start to end: check everything, lock, compute, account for it, tidy up."""

from __future__ import annotations

import shutil
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace

from virnucpro.contracts import Device, Json
from virnucpro.errors import InputError, RunInterruptedError, UsageError, VirNucProError
from virnucpro.events import Notice, Show
from virnucpro.layout import STDIN
from virnucpro.report.page import report_problem
from virnucpro.results import open_run
from virnucpro.run.prepare import Models, find_models, identity, prediction_recipe, settled
from virnucpro.run.recipe import EmbeddingRun, begin, conclude, embed
from virnucpro.run.record import (
    facts_of_results,
    update_failure_table,
    write_failed_records,
    write_run_record,
)
from virnucpro.run.request import PredictionRequest, refuse_own_files
from virnucpro.run.run import FinishedFigures
from virnucpro.run.workers import opened_workers
from virnucpro.settings import SHIPPED_MODELS, Thresholds
from virnucpro.stages.result_files import OutputFigures
from virnucpro.store import legacy
from virnucpro.store.disk import Disk
from virnucpro.store.hashed import HashedFile, hashed_input
from virnucpro.store.lock import locked, refuse_held
from virnucpro.store.work import RunIdentity, RunState, check_run, read_identity
from virnucpro.workers.scheduler import Workers
from virnucpro.workers.signals import Interruption

# Of the free space that the features of a group of runs may take. The features of a group exist at
# the same time; those of one run do so in any case.
GROUP_SHARE = 0.25
# Of a group: each has an open lock file and threads of its own, and many systems allow a process
# only 256 or 1,024 open files.
MOST_RUNS = 100


@dataclass(frozen=True)
class Outcome:
    """What came out of a run.

    ``record`` is what ``STEM_run.json`` holds, ``failed_records`` the number of records of which a
    frame could not be embedded, ``computed`` the number of tasks that were carried out.
    """

    results: OutputFigures
    record: Mapping[str, Json]
    failed_records: int
    computed: int


def run_prediction(
    request: PredictionRequest,
    show: Show,
    disk: Disk | None = None,
    interruption: Interruption | None = None,
    workers: Workers | None = None,
) -> Outcome:
    """Carry out a checked request, or finish what an earlier one left.

    ``interruption`` is what catches the signals, if anything does. ``workers`` carries out the
    tasks; None is that of the chosen devices.
    """
    disk = disk or Disk()
    refuse_held(request.layout.lock)
    with ExitStack() as stack:
        if workers is None:
            probe, machine = request.layout.probe, request.settings.machine
            opened = opened_workers(machine, probe, show, interruption, disk)
            workers = stack.enter_context(opened)
        (outcome,) = run_predictions(
            [request], workers, show, lambda index: nullcontext(show), disk
        ).values()
        return outcome


def run_predictions(
    requests: Sequence[PredictionRequest],
    workers: Workers,
    show: Show,
    alone: Callable[[int], AbstractContextManager[Show]],
    disk: Disk,
) -> dict[int, Outcome]:
    """Carry out requests that differ only in their inputs and output directories.

    The stages of this process are done one run after the other. An embedding stage is one piece of
    work for a group of runs, so that its model is loaded once for all of them.

    ``alone`` returns the context in which work concerns the request of this index and no other; it
    may suppress errors, and yields what shows events of that request. Returns the outcomes by the
    indices of their requests.
    """
    models = find_models(requests, workers, show)
    outcomes: dict[int, Outcome] = {}
    waiting = deque(enumerate(requests))
    while waiting:
        runs: dict[int, EmbeddingRun] = {}
        with ExitStack() as locks:
            while waiting and not is_full(runs.values()):
                index, request = waiting.popleft()
                if len(requests) > 1:
                    count = f"{index + 1} of {len(requests)}"
                    show(Notice("info", f"sample {count}: {request.layout.sample}"))
                with alone(index) as show_own, ExitStack() as lock:
                    run = lock.enter_context(opened_run(request, models, disk, show_own))
                    begin(run)
                    runs[index] = run
                    locks.push(lock.pop_all())
            embed([*runs.values()], workers, show)
            for index, run in runs.items():
                with alone(index):
                    conclude(run)
                    devices = workers.pool.devices
                    outcomes[index] = finish(requests[index], models, run, devices)
    return outcomes


def is_full(group: Collection[EmbeddingRun]) -> bool:
    """Return whether runs are enough to share the workers: their features exist at one time."""
    if not group:
        return False
    free = shutil.disk_usage(next(iter(group)).layout.root).free
    needed = sum(run.bytes_of_features for run in group)
    return len(group) >= MOST_RUNS or needed > GROUP_SHARE * free


@contextmanager
def opened_run(
    request: PredictionRequest, models: Models, disk: Disk, show: Show
) -> Iterator[EmbeddingRun]:
    """Hold the lock of a run in the block, and check that it may start or continue."""
    layout, source = request.layout, request.input_files
    encoders = models.encoders.sources.values()
    files = [models.classifier.file, *(file for each in encoders for file in each.files)]
    refuse_own_files(layout, [file.path for file in files])
    with locked(layout.lock) as stale:
        if stale:
            show(Notice("info", f"the last run ended unexpectedly: {stale}"))
        piped = request.source == STDIN
        if piped:
            with disk.create(layout.incoming) as out:
                while block := sys.stdin.buffer.read(1 << 20):
                    out.write(block)
        try:
            seen = [hashed_input(layout.incoming if piped else path) for path in source.paths]
            request = settled(request, replace(source, first=seen[0].path), show)
            layout = request.layout
            state = begun_state(request, models, seen, disk, show)
        except (VirNucProError, RunInterruptedError):
            disk.remove(layout.incoming)  # the input of the run that is there stays as it is
            raise
        if piped:
            disk.move(layout.incoming, layout.spooled)
            seen = [replace(seen[0], path=source.first)]
        recipe = prediction_recipe(request, models, disk, seen, state.identity)
        # All that the results are made from.
        kept = layout.records_table, layout.frames_table, layout.predictions
        run = EmbeddingRun(layout, disk, recipe.stages, state, show, seen, kept, recipe=recipe)
        try:
            yield run
        except (InputError, UsageError) as error:
            disk.remove(layout.spooled)  # the same command is given the input again
            # The user knows no file of this name: it is the copy of what was piped in.
            raise type(error)(str(error).replace(str(layout.spooled), "standard input")) from error


def begun_state(
    request: PredictionRequest,
    models: Models,
    seen: Sequence[HashedFile],
    disk: Disk,
    show: Show,
) -> RunState:
    """Return the state of a run, which may start or continue; one of version 1 is taken over."""
    layout, source = request.layout, request.input_files
    name = STDIN if request.source == STDIN else str(source.first)
    mates = "" if source.second is None else str(source.second)

    def state_after(earlier: RunIdentity | None) -> RunState:
        return RunState(name, asdict(identity(request, models, seen, earlier)), mates=mates)

    if not request.force and legacy.is_untaken(layout):
        stages = models.encoders.stages(layout, disk, request.settings.machine)
        embedding = [(each.molecule, each.source.dim, each.described) for each in stages]
        for text in legacy.migrate(layout, disk, state_after(None), embedding):
            show(Notice("warning", text))
    state = state_after(None if request.force else read_identity(layout))
    return check_run(layout, disk, state, show, force=request.force)


def finish(
    request: PredictionRequest, models: Models, run: EmbeddingRun, devices: Sequence[Device]
) -> Outcome:
    """Account for what was carried out, write the record and the report of the run, and tidy up."""
    layout, disk, settings = run.layout, run.disk, request.settings
    failures, failed = run.failures, 0
    if failures or layout.failed_lock.exists():  # a start that was killed may have written a part
        update_failure_table(layout, disk, run.state.source, failures)
    if failures or layout.failed_fasta.exists():
        failed = write_failed_records(run, request.input_files, failures)
    results = run.ledger.figures(layout.receipt("output"), OutputFigures)
    frames = facts_of_frames(run)
    details = details_of(request, models, run, results, frames)
    details["counts"]["records_with_failures"] = failed
    with suppress(UsageError, TypeError, LookupError):  # there is none yet, or it is damaged
        earlier = open_run(layout.root, layout.stem).record["settings"]["thresholds"]
        both = (settings.thresholds, Thresholds(**earlier))
        if both[0] != both[1]:
            options = [thresholds.options() or "the defaults" for thresholds in both]
            run.show(Notice("info", f"thresholds: {options[0]}; before: {options[1]}"))
    record = write_run_record(run, models.encoders, devices, request.command, details)
    if problem := report_problem(layout, disk):
        run.show(Notice("warning", problem))
    if not failed and settings.machine.remove_intermediate:
        run.tidy(frames, run.recipe.results)
        disk.remove(layout.spooled)
    run.save_progress(is_finished=not failed)
    return Outcome(results, record, failed, run.computed.total())


def details_of(
    request: PredictionRequest,
    models: Models,
    run: EmbeddingRun,
    results: OutputFigures,
    frames: FinishedFigures,
) -> dict[str, Json]:
    """Return what the record of a run of ``predict`` says beside what any record does."""
    records, length = run.ledger.rows(run.layout.records_table), run.layout.chunk_length
    if records != results.records:
        raise AssertionError(f"{records} records went in, {results.records} are accounted for")
    digests = [file.sha256 for file in run.inputs]
    source: dict[str, Json] = {"path": request.source, "sha256": digests[0]}
    if request.mates is not None:
        source["mates"] = {"path": request.mates, "sha256": digests[1]}
    if request.interleaved:
        source["interleaved"] = True
    settings, dedup = request.settings, run.state.identity.dedup
    analysis = replace(settings.analysis.resolved(), dedup=dedup, chunk_length=length)
    classifier, calibration = models.classifier.file, models.calibration(length)
    facts = facts_of_results(results)
    counts: dict[str, Json] = {
        "records": records,
        **facts["counts"],
        "frames": frames.frames,
        "feature_files_of_an_earlier_version": frames.feature_files_of_version_1,
    }
    if frames.identical_frames is not None:
        counts["identical_frames"] = frames.identical_frames
    details: dict[str, Json] = {
        "input": source,
        "models": {
            "classifier": {
                "path": str(classifier.path),
                "sha256": classifier.sha256,
                "calibrated": results.calibrated,
                "calibration": calibration and str(calibration.path),
            }
        },
        **facts,
        "settings": {
            "analysis": asdict(analysis),
            "thresholds": asdict(settings.thresholds),
            "machine": asdict(settings.machine),
        },
        "counts": counts,
    }
    if shipped := SHIPPED_MODELS.get(analysis.model_type):
        details["notice"] = shipped.notice
    return details


def facts_of_frames(run: EmbeddingRun) -> FinishedFigures:
    """Return what is known of the frames of a run, now or by the receipt of a finished one."""
    layout, ledger = run.layout, run.ledger
    if run.is_tidied:
        return ledger.figures(layout.finished, FinishedFigures)
    copies = ledger.rows(layout.copies_table) if run.state.identity.dedup else None
    return FinishedFigures(
        frames=ledger.rows(layout.frames["nucleotide"]),
        identical_frames=copies,
        feature_files_of_version_1=sum(
            receipt.origin == "legacy" for receipt in ledger.receipts.values()
        ),
    )
