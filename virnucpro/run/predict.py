"""One prediction from start to end: check everything, lock, compute, account for it, tidy up."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from virnucpro.contracts import Device, Json
from virnucpro.errors import InputError, RunInterruptedError, UsageError, VirNucProError
from virnucpro.events import Notice, Show
from virnucpro.layout import STDIN
from virnucpro.report.writing import report_problem
from virnucpro.results import open_run
from virnucpro.run.prepare import Models, find_models, identity, prediction_steps, settled
from virnucpro.run.recipe import EmbeddingRun, predict
from virnucpro.run.record import update_failure_table, write_failed_records, write_record
from virnucpro.run.request import PredictionRequest, refuse_own_files
from virnucpro.run.run import FINISHED, FinishedFigures
from virnucpro.run.workers import opened_workers
from virnucpro.settings import SHIPPED_MODELS, recorded_thresholds
from virnucpro.stages.genes import HALLMARKS
from virnucpro.stages.result_files import OutputFigures, result_counts
from virnucpro.store.disk import Disk
from virnucpro.store.hashed import hashed, hashed_input
from virnucpro.store.lock import locked, refuse_held
from virnucpro.store.work import RunState, check_run
from virnucpro.workers.scheduler import Workers
from virnucpro.workers.signals import Interruption


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
        models = find_models([request], workers, show)
        with opened_run(request, models, disk, show) as run:
            run.threads = workers.host_threads
            predict([run], workers, show)
            return finish(request, models, run, workers.pool.devices)


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
            own = identity(request, models, seen)
            state = RunState(
                STDIN if piped else str(source.first),
                asdict(own),
                mates="" if source.second is None else str(source.second),
            )
            force, resume = request.force, request.resume
            state = check_run(layout, disk, state, show, resume=resume, force=force)
        except (VirNucProError, RunInterruptedError):
            disk.remove(layout.incoming)  # the input of the run that is there stays as it is
            raise
        if piped:
            disk.move(layout.incoming, layout.spooled)
            seen = [replace(seen[0], path=source.first)]
        steps = prediction_steps(request, models, disk, seen, own)
        keeps = not request.settings.machine.remove_intermediate
        run = EmbeddingRun(
            layout,
            disk,
            steps.all,
            state,
            show,
            seen,
            steps=steps,
            keeps_features=keeps,
            bytes_per_frame=models.encoders.bytes_per_frame(keeps_features=keeps),
        )
        try:
            yield run
        except (InputError, UsageError) as error:
            disk.remove(layout.spooled)  # the same command is given the input again
            # The user knows no file of this name: it is the copy of what was piped in.
            raise type(error)(str(error).replace(str(layout.spooled), "standard input")) from error


def finish(
    request: PredictionRequest, models: Models, run: EmbeddingRun, devices: Sequence[Device]
) -> Outcome:
    """Account for what was carried out, write the record and the report of the run, and tidy up."""
    layout, disk, ledger = run.layout, run.disk, run.ledger
    failures, failed = run.failures, 0
    if failures or layout.failed_lock.exists():  # a start that was killed may have written a part
        update_failure_table(layout, disk, run.state.source, failures)
    if failures or layout.failed_fasta.exists():
        failed = write_failed_records(run, request.input_files, failures)
    results = ledger.figures(layout.receipt("output"))
    assert isinstance(results, OutputFigures)
    records, kept = ledger.rows(layout.records_table), facts_of_frames(run)
    if records != results.records:
        raise AssertionError(f"{records} records went in, {results.records} are accounted for")
    digests = [file.sha256 for file in run.inputs]
    source: dict[str, Json] = {"path": request.source, "sha256": digests[0]}
    if request.mates is not None:
        source["mates"] = {"path": request.mates, "sha256": digests[1]}
    if request.interleaved:
        source["interleaved"] = True
    dedup, length = run.state.identity.dedup, layout.chunk_length
    settings = request.settings
    analysis = replace(settings.analysis.resolved(), dedup=dedup, chunk_length=length)
    classifier, calibration = models.classifier.file, models.calibration(length)
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
        "hallmarks": {"sha256": hashed(HALLMARKS).sha256},
        "viral": settings.thresholds.described(calibrated=results.calibrated),
        "settings": {
            "analysis": asdict(analysis),
            "thresholds": asdict(settings.thresholds),
            "machine": asdict(settings.machine),
        },
        "counts": {
            "records": records,
            **result_counts(results),
            "frames": kept.frames,
            "records_with_failures": failed,
            "feature_files_of_an_earlier_version": kept.feature_files_of_version_1,
        },
    }
    if shipped := SHIPPED_MODELS.get(analysis.model_type):
        details["notice"] = shipped.notice
    if kept.identical_frames is not None:
        details["counts"]["identical_frames"] = kept.identical_frames
    with suppress(UsageError, TypeError, LookupError):  # there is none yet, or it is damaged
        earlier = recorded_thresholds(open_run(layout.root, layout.stem).record["settings"])
        if earlier != settings.thresholds:
            both = (settings.thresholds, earlier)
            options = [thresholds.options() or "the defaults" for thresholds in both]
            run.show(Notice("info", f"thresholds: {options[0]}; before: {options[1]}"))
    record = write_record(run, models.encoders, devices, request.command, details)
    if problem := report_problem(layout, disk):
        run.show(Notice("warning", problem))
    if not failed and settings.machine.remove_intermediate:
        run.finish(run.files_kept, kept)
        disk.remove(layout.spooled)
    run.save_progress(is_finished=not failed)
    return Outcome(results, record, failed, run.computed.total())


def facts_of_frames(run: EmbeddingRun) -> FinishedFigures:
    """Return what is known of the frames of a run, now or by the receipt of a finished one."""
    layout, ledger = run.layout, run.ledger
    if run.is_finished:
        known = ledger.figures(layout.receipt(FINISHED))
        assert isinstance(known, FinishedFigures)
        return known
    copies = ledger.rows(layout.copies_table) if run.state.identity.dedup else None
    return FinishedFigures(
        frames=ledger.rows(layout.frames["nucleotide"]),
        identical_frames=copies,
        feature_files_of_version_1=sum(
            receipt.origin == "legacy" for receipt in ledger.receipts.values()
        ),
    )
