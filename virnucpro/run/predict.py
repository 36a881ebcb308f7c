"""One prediction from start to end: check everything, lock, compute, account for it, tidy up."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from virnucpro.contracts import SPLITTING, Device, Json
from virnucpro.encoders.family import Reading
from virnucpro.errors import InputError, UsageError, VirNucProError
from virnucpro.events import Emit, Notice
from virnucpro.executors.executor import Executor
from virnucpro.executors.signals import Interruption
from virnucpro.layout import STDIN
from virnucpro.report.writing import report_problem
from virnucpro.run.engine import Run, checked_state, execute
from virnucpro.run.failures import (
    update_failure_table,
    with_failed_copies,
    write_failed_records,
)
from virnucpro.run.files import tidy_up
from virnucpro.run.prepare import Prediction, prepare
from virnucpro.run.record import RunOutcome, run_record, write_record
from virnucpro.run.request import PredictionRequest, check_request
from virnucpro.run.workers import opened_workers
from virnucpro.settings import SHIPPED_MODELS
from virnucpro.stages.chunking import ChunkingFigures, hashed_input
from virnucpro.stages.results import OutputFigures, result_counts
from virnucpro.stages.splitting import SplittingFigures
from virnucpro.store.disk import Disk
from virnucpro.store.lock import locked, refuse_held
from virnucpro.store.state import INPUT_NAMES, RunState


@dataclass(frozen=True)
class Summary:
    """Counts of a finished run.

    ``reading`` is what of a chunk the encoders read, ``results`` what came out,
    ``copies`` the number of frames that are the same as an earlier one (None where nobody looked),
    ``failed_records`` the number of records of which a frame could not be embedded, ``adopted``
    that of the feature files that an earlier version of the program computed, ``pairs`` whether a
    record is a pair of reads.
    """

    records: int
    frames: int
    reading: Reading
    chunk_length: int
    results: OutputFigures
    failed_records: int
    adopted: int
    seconds: Mapping[str, float]
    host_wait: Mapping[str, float]
    computed: int
    files: tuple[Path, ...]
    notice: str = ""
    copies: int | None = None
    pairs: bool = False

    def counts(self) -> dict[str, Json]:
        """Return the counts as they stand in ``STEM_run.json``."""
        return {
            "records": self.records,
            **result_counts(self.results),
            "frames": self.frames,
            **({} if self.copies is None else {"identical_frames": self.copies}),
            "records_with_failures": self.failed_records,
            "feature_files_of_an_earlier_version": self.adopted,
        }


def run_prediction(
    request: PredictionRequest,
    emit: Emit,
    disk: Disk | None = None,
    interruption: Interruption | None = None,
    executor: Executor | None = None,
) -> Summary:
    """Carry out a request, or finish what an earlier one left.

    ``interruption`` is what catches the signals, if anything does. ``executor`` carries out the
    tasks; None is that of the chosen devices.

    Raises:
        VirNucProError: see ``virnucpro.errors``; nothing that was finished is lost.
    """
    disk = disk or Disk()
    check_request(request)
    refuse_held(request.layout.lock)
    with opened_workers(request.machine, request.layout.probe, emit, interruption, disk) as workers:
        prediction = prepare([request], workers.devices, disk, emit)
        workers.require(model_sizes(prediction))
        with admitted_run(request, prediction, disk, emit) as run:
            used = executor or workers.executor
            try:
                execute(run, used, emit)
            finally:
                used.close()
            return finish(request, prediction, run, workers.devices, emit)


@contextmanager
def admitted_run(
    request: PredictionRequest, prediction: Prediction, disk: Disk, emit: Emit
) -> Iterator[Run]:
    """Hold the lock of a run in the block, and check that it may start or continue.

    Raises:
        LockedError: another process works on it.
        ResumeRefusedError: the existing files were made from something else.
        UsageError: files would be overwritten that this run did not write.
    """
    layout, source = prediction.layout, prediction.source
    with locked(layout.lock) as stale:
        if stale:
            emit(Notice("info", f"the last run ended unexpectedly: {stale}"))
        from_stdin = request.source == STDIN
        if from_stdin:
            with disk.create(layout.incoming) as out:
                while block := sys.stdin.buffer.read(1 << 20):
                    out.write(block)
        label = STDIN if from_stdin else str(source.first)
        try:
            seen = [hashed_input(layout.incoming if from_stdin else p) for p in source.paths]
            digests = [file.sha256 for file in seen]
            state = checked_state(
                layout,
                disk,
                RunState(
                    label,
                    {**dict(zip(INPUT_NAMES, digests, strict=False)), **prediction.identity()},
                    mates="" if source.second is None else str(source.second),
                ),
                emit,
                resume=request.resume,
                force=request.force,
            )
        except VirNucProError:
            disk.remove(layout.incoming)  # the input of the run that is there stays as it is
            raise
        if from_stdin:
            disk.move(layout.incoming, layout.spooled)
            seen = [replace(seen[0], path=source.first)]
        stages = prediction.stages(seen, state.budgets)
        try:
            yield Run(layout, disk, stages, state, seen, features=prediction.features)
        except (InputError, UsageError) as error:
            if not from_stdin:
                raise
            # The user knows no file of this name: it is the copy of what was piped in.
            text = str(error).replace(str(layout.spooled), "standard input")
            raise type(error)(text) from error


def finish(
    request: PredictionRequest,
    prediction: Prediction,
    run: Run,
    devices: Sequence[Device],
    emit: Emit,
) -> Summary:
    """Account for what was carried out, write the record and the report of the run, and tidy up."""
    outcome, layout, disk = run.outcome, run.layout, run.disk
    failures = with_failed_copies(layout, outcome.failures)
    update_failure_table(layout, disk, run.state.source, failures)
    failed = write_failed_records(layout, disk, prediction.source, run.inputs, failures)
    summary = summarise(prediction, outcome, failed)
    record = run_record(
        outcome,
        prediction.encoders,
        devices,
        request.command,
        **({"notice": summary.notice} if summary.notice else {}),
        input=_input_record(request, run),
        models={
            "classifier": {
                "path": str(prediction.classifier.file.path),
                "sha256": prediction.classifier.file.sha256,
            }
        },
        settings={
            "analysis": asdict(prediction.analysis),
            "cuts": asdict(prediction.cuts),
            "machine": asdict(prediction.machine),
        },
        counts=summary.counts(),
    )
    write_record(layout, disk, record, ("counts",), computed=summary.computed > 0)
    if problem := report_problem(layout, disk, emit):
        emit(Notice("warning", problem))
    if not failed:
        keep = not request.machine.remove_intermediate
        tidy_up(layout, disk, run.stages, outcome.ledger, keep_intermediate=keep)
        if request.machine.remove_intermediate:
            disk.remove(layout.spooled)
    return summary


def _input_record(request: PredictionRequest, run: Run) -> dict[str, Json]:
    """Return the files of the input with their digests, as they stand in ``STEM_run.json``."""
    digests = [file.sha256 for file in run.inputs]
    record: dict[str, Json] = {"path": request.source, "sha256": digests[0]}
    if request.mates is not None:
        record["mates"] = {"path": request.mates, "sha256": digests[1]}
    if request.interleaved:
        record["interleaved"] = True
    return record


def model_sizes(prediction: Prediction) -> dict[Path, int]:
    """Return the files that every worker reads, with their sizes in bytes."""
    return {
        file.path: file.stamp.size
        for source in prediction.encoders.sources.values()
        for file in source.files
    }


def summarise(prediction: Prediction, outcome: RunOutcome, failed_records: int) -> Summary:
    """Gather the counts, and assert that every record of the input is scored or explained."""
    layout, ledger = prediction.layout, outcome.ledger
    chunking = ledger.figures(layout.receipt("chunking"))
    output = ledger.figures(layout.receipt("output"))
    splitting = ledger.figures(layout.receipt(SPLITTING))
    assert isinstance(chunking, ChunkingFigures)
    assert isinstance(output, OutputFigures)
    written = [file.path for file in ledger.outputs("output")]
    shipped = SHIPPED_MODELS.get(prediction.analysis.model_type)
    summary = Summary(
        notice=shipped.notice if shipped else "",
        copies=splitting.copies if isinstance(splitting, SplittingFigures) else None,
        pairs=prediction.source.paired,
        records=chunking.records,
        frames=ledger.outputs("translation")[0].rows,
        reading=prediction.encoders.nucleotide.reading,
        chunk_length=layout.chunk_length,
        results=output,
        failed_records=failed_records,
        adopted=sum(receipt.origin == "legacy" for _, receipt in ledger.receipts()),
        seconds=outcome.seconds,
        host_wait=outcome.host_wait,
        computed=outcome.computed.total(),
        files=(
            layout.report,
            layout.virus_table,
            layout.virus_fasta,
            *(path for path in layout.virus_reads if path in written),
            layout.regions_table,
            layout.regions_bed,
            layout.regions_gff3,
            layout.contigs_table,
            layout.chunks_table,
            layout.predictions,
            layout.consensus,
            layout.run_json,
            *((layout.failed_table, layout.failed_fasta) if failed_records else ()),
        ),
    )
    explained = sum(output.statuses.values())
    if explained != summary.records:
        raise AssertionError(f"{summary.records} records went in, {explained} are accounted for")
    return summary
