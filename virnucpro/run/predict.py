"""One run from start to end: check everything, lock, compute, account for it, tidy up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from virnucpro.devices import choose_devices, visible_gpus
from virnucpro.events import Event, Notice
from virnucpro.executors.executor import open_executor
from virnucpro.executors.signals import Interruption
from virnucpro.layout import STDIN, Layout
from virnucpro.run.accounting import Summary, counts, recorded_counts, summarise, write_run_json
from virnucpro.run.engine import Job, remove_intermediate, run
from virnucpro.run.failures import record_failures
from virnucpro.run.prepare import Request, check_paths, prepare
from virnucpro.run.worker_reports import Workers
from virnucpro.stages.chunking import stamp
from virnucpro.store import legacy
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.ledger import Ledger
from virnucpro.store.lock import locked
from virnucpro.store.state import RunState, admit_run, read_state, write_state

Emit = Callable[[Event], None]


def execute(
    request: Request,
    emit: Emit,
    disk: Disk | None = None,
    interruption: Interruption | None = None,
) -> Summary:
    """Carry out a request, or finish what an earlier one left.

    ``interruption`` is what catches the signals, if anything does.

    Raises:
        VirNucProError: see ``virnucpro.errors``; nothing that was finished is lost.
    """
    disk = disk or Disk()
    layout = request.layout
    check_paths(request, layout)
    if request.resume and not request.force:
        legacy.leave_alone(layout)
    devices = choose_devices(request.machine, visible_gpus())
    job = prepare(request, layout, devices, disk, emit)
    with locked(layout.lock) as stale:
        if stale:
            emit(Notice("info", f"the last run did not end in good order: {stale}"))
        if request.source == STDIN:
            _spool(sys.stdin.buffer, layout.spooled, disk)
        seen = stamp(job.source)
        digest = sha256_of(job.source)
        state = _admitted(request, job, digest, emit)
        sweep(layout, disk)
        ledger = Ledger(layout, disk, {job.source: digest})
        job = replace(job, budgets=state.budgets, seen=seen)
        workers = Workers(
            state.budgets, lambda b: write_state(layout, disk, replace(state, budgets=b)), emit
        )
        executor = open_executor(devices, request.machine, interruption)
        try:
            outcome = run(job, ledger, executor, workers.show)
        finally:
            executor.close()
        failed = record_failures(layout, disk, job.source, state.source, ledger)
        summary = summarise(job, ledger, outcome, failed)
        if outcome.computed or recorded_counts(layout) != counts(summary):
            write_run_json(
                job,
                summary,
                disk,
                source=request.source,
                source_sha256=digest,
                command=request.command,
                devices=devices,
                workers=workers.table(),
            )
        _tidy(job, ledger, failed)
        return summary


def _admitted(request: Request, job: Job, digest: str, emit: Emit) -> RunState:
    """The state of the run, on the disk; with the batch budgets of the run that is resumed.

    Raises:
        ResumeRefused: what is there was made from something else.
        UsageError: files would be overwritten that are not ours.
    """
    layout, disk = job.layout, job.disk
    state = _state(request, job, digest)
    admission = admit_run(layout, disk, state, resume=request.resume, force=request.force)
    if admission.notice:
        emit(Notice("info", admission.notice))
    earlier = read_state(layout)  # None where it was moved aside just now
    state = replace(state, budgets=earlier.budgets if earlier else {})
    write_state(layout, disk, state)
    return state


def _state(request: Request, job: Job, digest: str) -> RunState:
    source = request.source if request.source == STDIN else str(job.source)
    return RunState(
        source,
        {
            "input": digest,
            "chunk length": job.layout.chunk_length,
            "sequences per file": job.analysis.sequences_per_file,
            "duplicate ids": job.analysis.duplicate_ids,
            "nucleotide model": job.nucleotide.sha256,
            "protein model": job.protein.sha256,
            "classifier": job.classifier.sha256,
            "truncation": job.analysis.truncation,
            "precision": job.precision,
        },
    )


def _spool(stream: BinaryIO, path: Path, disk: Disk) -> None:
    with disk.create(path) as out:
        while block := stream.read(1 << 20):
            out.write(block)


def sweep(layout: Layout, disk: Disk) -> None:
    """Remove temporary files of earlier, killed processes."""
    disk.sweep(layout.root, layout.top_names())
    disk.sweep(layout.checkpoints, {layout.spooled.name})
    own = (layout.merged_folder, layout.folder("nucleotide"), layout.folder("protein"))
    for folder in (*own, *layout.part_folders()):
        disk.sweep(folder)
    if layout.state.is_dir():
        for folder in (layout.state, *layout.state.rglob("*/")):
            if folder.is_dir():
                disk.sweep(folder)


def _tidy(job: Job, ledger: Ledger, failed: int) -> None:
    """Remove what a finished run does not need; with failures everything stays."""
    if failed:
        return
    for folder in job.layout.part_folders():  # of files that were joined just before a kill
        job.disk.remove_tree(folder)
    if not job.machine.keep_intermediate:
        remove_intermediate(job, ledger)
        job.disk.remove(job.layout.spooled)
