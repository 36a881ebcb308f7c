"""One run from start to end: find and check everything, lock, compute, account for it, tidy up."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from virnucpro.accounting import Summary, summarise, write_run_json
from virnucpro.checkpoint import legacy
from virnucpro.checkpoint.disk import Disk, sha256_of
from virnucpro.checkpoint.ledger import Ledger
from virnucpro.checkpoint.lock import locked
from virnucpro.checkpoint.state import RunState, admit, read_state, write_state
from virnucpro.classifier import check_fit, inspect
from virnucpro.contracts import Device, Executor, Precision
from virnucpro.devices import choose_devices, choose_precision, visible_gpus
from virnucpro.encoders.registry import locate
from virnucpro.errors import ModelError, OutputError, ResumeRefused, UsageError
from virnucpro.events import Event, Notice
from virnucpro.executors.crew import Limits
from virnucpro.executors.local import LocalExecutor
from virnucpro.executors.signals import Interruption
from virnucpro.executors.spawn import SpawnExecutor
from virnucpro.failures import record_failures
from virnucpro.layout import STDIN, Layout, stem_of
from virnucpro.models.store import check_digest, find
from virnucpro.pipeline import Job, remove_intermediate, run
from virnucpro.settings import TOY_WARNING, Machine, Science
from virnucpro.stages.chunking import changed, stamp
from virnucpro.workers import Workers

Emit = Callable[[Event], None]
CPU_LIMITS = Limits(silence=3600)  # a batch of ESM-2 3B takes minutes on one slow core


@dataclass(frozen=True)
class Request:
    """What the user asked for. ``source`` is a path or ``-`` for standard input."""

    source: str
    output_dir: Path | None
    science: Science
    machine: Machine
    resume: bool = False
    force: bool = False
    command: tuple[str, ...] = ()

    @property
    def layout(self) -> Layout:
        """Where everything goes; the default output directory is ``STEM_predictions``."""
        stem = stem_of(self.source)
        root = self.output_dir or Path(f"{stem}_predictions")
        length = self.science.resolved().chunk_length
        assert length is not None
        return Layout(root.absolute(), stem, length)


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
    _check_paths(request, layout)
    if request.resume and not request.force:
        legacy.leave_alone(layout)
    devices = choose_devices(request.machine, visible_gpus())
    job = _job(request, layout, devices, disk, emit)
    with locked(layout.lock) as stale:
        if stale:
            emit(Notice("info", f"the last run did not end in good order: {stale}"))
        if request.source == STDIN:
            _spool(sys.stdin.buffer, layout.spooled, disk)
        before = stamp(job.source)
        digest = sha256_of(job.source)
        state = _state(request, job, digest)
        if notice := admit(layout, disk, state, resume=request.resume, force=request.force):
            emit(Notice("info", notice))
        earlier = read_state(layout)  # None where it was moved aside just now
        state = replace(state, budgets=earlier.budgets if earlier else {})
        job = replace(job, budgets=state.budgets)
        write_state(layout, disk, state)
        _sweep(layout, disk)
        ledger = Ledger(layout, disk, {job.source: digest})
        executor = _executor(devices, request.machine, interruption)
        workers = Workers(
            state.budgets, lambda b: write_state(layout, disk, replace(state, budgets=b)), emit
        )
        try:
            outcome = run(job, ledger, executor, workers.show)
        finally:
            executor.close()
        if stamp(job.source) != before:
            raise changed(job.source)
        failed = record_failures(layout, disk, job.source, request.source, ledger)
        summary = summarise(job, ledger, outcome, failed)
        if outcome.computed or not layout.run_json.exists():
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
        if not failed:
            # Of files that were joined just before a kill; with failures they are still needed.
            for folder in layout.part_folders():
                disk.remove_tree(folder)
        if not failed and not request.machine.keep_intermediate:
            remove_intermediate(job, ledger)
            disk.remove(layout.spooled)
        return summary


def _check_paths(request: Request, layout: Layout) -> None:
    _check_writable(layout)
    if request.source == STDIN:
        if sys.stdin is None:  # closed by whoever started this process
            raise UsageError("input -: standard input is closed; name a file, or pipe one in")
        return
    source = Path(request.source)
    _check_readable(source)
    resolved = source.resolve()
    if any(
        resolved == path.resolve() or path.resolve() in resolved.parents for path in layout.owned()
    ):
        raise UsageError(
            f"input {source} is a file that this run would write: choose another --output-dir"
        )


def _check_writable(layout: Layout) -> None:
    """As far as it can be seen without writing; a folder that is not there yet is fine."""
    for folder in (layout.root, layout.checkpoints):
        # Path.exists raises where a folder above it may not be searched.
        if not os.path.exists(folder):  # noqa: PTH110
            return
        if not folder.is_dir():
            raise UsageError(f"--output-dir {folder} is a file: name a folder")
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise OutputError(f"cannot write into {folder}: choose another --output-dir")


def _check_readable(source: Path) -> None:
    try:
        mode = source.stat().st_mode
        if stat.S_ISREG(mode):
            source.open("rb").close()
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"input {source} not found: check its path") from None
    except OSError as error:
        raise UsageError(
            f"input {source} cannot be read ({error.strerror}): check its path and permissions"
        ) from error
    if stat.S_ISDIR(mode):
        raise UsageError(f"input {source} is a folder: name a FASTA or FASTQ file")
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"input {source} is no regular file, and it is read more than once: pipe it to "
            f"--input - instead"
        )


def _job(
    request: Request, layout: Layout, devices: Sequence[Device], disk: Disk, emit: Emit
) -> Job:
    """Find the models and see that they fit each other, before any work."""
    science = request.science.resolved()
    assert science.chunk_length is not None
    if science.model_type == "toy":
        emit(Notice("warning", TOY_WARNING))
    nucleotide = locate(science.nucleotide_model, "nucleotide")
    protein = locate(science.protein_model, "protein")
    classifier = inspect(_classifier_path(science))
    check_digest(classifier.path, classifier.sha256)
    warnings = check_fit(
        classifier, nucleotide=nucleotide, protein=protein, chunk_length=science.chunk_length
    )
    for warning in warnings:
        emit(Notice("warning", warning))
    source = layout.spooled if request.source == STDIN else Path(request.source).absolute()
    precision = _precision(request, layout, devices)
    return Job(
        source, layout, science, request.machine, precision, nucleotide, protein, classifier, disk
    )


def _classifier_path(science: Science) -> Path:
    assert science.classifier is not None
    path = Path(science.classifier)
    if path.exists():
        return path.absolute()
    if path.name != science.classifier or science.model_type == "custom":
        raise ModelError(f"classifier {path} not found: check --model-path")
    return find(science.classifier)


def _precision(request: Request, layout: Layout, devices: Sequence[Device]) -> Precision:
    """The precision of the run: an interrupted one keeps its own where ``auto`` is asked for."""
    wanted: str = request.science.precision
    if wanted == "auto" and request.resume:
        try:
            earlier = read_state(layout)
        except ResumeRefused:
            if not request.force:
                raise
            earlier = None
        wanted = str(earlier.science.get("precision", "auto")) if earlier else "auto"
    return choose_precision(wanted, devices)


def _state(request: Request, job: Job, digest: str) -> RunState:
    source = request.source if request.source == STDIN else str(job.source)
    return RunState(
        source,
        {
            "input": digest,
            "chunk length": job.layout.chunk_length,
            "sequences per file": job.science.sequences_per_file,
            "duplicate ids": job.science.duplicate_ids,
            "nucleotide model": job.nucleotide.sha256,
            "protein model": job.protein.sha256,
            "classifier": job.classifier.sha256,
            "truncation": job.science.truncation,
            "precision": job.precision,
        },
    )


def _executor(
    devices: Sequence[Device], machine: Machine, interruption: Interruption | None
) -> Executor:
    """In this process on one CPU; else a worker process a device."""
    if devices[0].kind == "cpu" and machine.cpu_workers is None:
        return LocalExecutor(devices[0])
    limits = CPU_LIMITS if devices[0].kind == "cpu" else Limits()
    return SpawnExecutor(devices, machine.tokenizer_threads, interruption, limits)


def _spool(stream: BinaryIO, path: Path, disk: Disk) -> None:
    with disk.create(path) as out:
        while block := stream.read(1 << 20):
            out.write(block)


def _sweep(layout: Layout, disk: Disk) -> None:
    """Remove temporary files of earlier, killed processes."""
    disk.sweep(layout.root, layout.stem)
    own = (layout.merged_folder, layout.folder("nucleotide"), layout.folder("protein"))
    for folder in (*own, *layout.part_folders()):
        disk.sweep(folder)
    if layout.state.is_dir():
        for folder in (layout.state, *layout.state.rglob("*/")):
            if folder.is_dir():
                disk.sweep(folder)
