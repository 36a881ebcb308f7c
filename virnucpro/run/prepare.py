"""What was asked for, and everything that is found and checked before a run starts."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from virnucpro.classifier import check_fit, inspect
from virnucpro.contracts import Device
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import check_precision, ignored_options, locate
from virnucpro.errors import ModelError, OutputError, ResumeRefusedError, UsageError
from virnucpro.events import Event, Notice
from virnucpro.layout import STDIN, Layout, stem_of
from virnucpro.models.store import check_digest, find
from virnucpro.precision import choose_precision
from virnucpro.run.engine import Job
from virnucpro.settings import TOY_WARNING, AnalysisSettings, MachineSettings
from virnucpro.store.disk import Disk
from virnucpro.store.state import read_state

Emit = Callable[[Event], None]


@dataclass(frozen=True)
class Request:
    """What the user asked for. ``source`` is a path or ``-`` for standard input."""

    source: str
    output_dir: Path | None
    analysis: AnalysisSettings
    machine: MachineSettings
    resume: bool = False
    force: bool = False
    command: tuple[str, ...] = ()

    @property
    def layout(self) -> Layout:
        """Where everything goes; the default output directory is ``STEM_predictions``."""
        stem = stem_of(self.source)
        root = self.output_dir or Path(f"{stem}_predictions")
        length = self.analysis.resolved().chunk_length
        assert length is not None
        return Layout(root.absolute(), stem, length)


def check_paths(request: Request, layout: Layout) -> None:
    """See that input and output directory can be used, before anything else is looked at.

    Raises:
        UsageError: input missing, unreadable, no regular file, or one that the run would write.
        OutputError: the output directory cannot be written.
    """
    check_writable(layout)
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


def prepare(
    request: Request, layout: Layout, devices: Sequence[Device], disk: Disk, emit: Emit
) -> Job:
    """Find the models and see that they fit each other, before any work.

    Raises:
        ModelError: a model is missing, damaged, or does not fit the others.
        UsageError: settings that contradict each other.
    """
    analysis = request.analysis.resolved()
    assert analysis.chunk_length is not None
    if analysis.model_type == "toy":
        emit(Notice("warning", TOY_WARNING))
    _refuse_missing(analysis)
    nucleotide = locate(analysis.nucleotide_model, "nucleotide")
    protein = locate(analysis.protein_model, "protein")
    classifier = inspect(_classifier_path(analysis))
    check_digest(classifier.path, classifier.sha256)
    warnings = check_fit(
        classifier, nucleotide=nucleotide, protein=protein, chunk_length=analysis.chunk_length
    )
    for warning in warnings:
        emit(Notice("warning", warning))
    source = layout.spooled if request.source == STDIN else Path(request.source).absolute()
    wanted: str = request.analysis.precision
    if request.resume or not request.force:
        wanted = precision_of(layout, wanted, force=request.force)
    precision = choose_precision(wanted, devices)
    check_precision(precision, nucleotide, protein)
    for text in ignored_by((nucleotide, protein), request.analysis, request.machine):
        emit(Notice("warning", text))
    return Job(
        source, layout, analysis, request.machine, precision, nucleotide, protein, classifier, disk
    )


def ignored_by(
    sources: Sequence[EncoderSource], analysis: AnalysisSettings, machine: MachineSettings
) -> list[str]:
    """Return a sentence for each option that was given and has no effect on these encoders."""
    return ignored_options(
        sources,
        budgets={"nucleotide": machine.dnabert_sequences, "protein": machine.esm_tokens},
        precision=analysis.precision,
        compile=machine.compile,
    )


def check_writable(layout: Layout) -> None:
    """As far as it can be seen without writing; a folder that is not there yet is fine.

    Raises:
        UsageError: the output directory is a file.
        OutputError: it cannot be written.
    """
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


def _refuse_missing(analysis: AnalysisSettings) -> None:
    """Name everything that a released model type lacks at once, not one thing a run.

    Raises:
        ModelError: several models are missing; a single one is reported where it is needed.
    """
    if analysis.model_type not in ("300", "500"):
        return
    missing = []
    for name in (analysis.nucleotide_model, analysis.protein_model, str(analysis.classifier)):
        if not Path(name).exists():
            try:
                find(name)
            except ModelError:
                missing.append(name)
    if len(missing) > 1:
        raise ModelError(
            f"--model-type {analysis.model_type} needs models that are not on this machine: "
            f"{', '.join(missing)}; fetch them with: virnucpro models fetch {analysis.model_type} "
            f"(without internet: see docs/models.md). For a first look, --model-type lite needs "
            f"none of them"
        )


def _classifier_path(analysis: AnalysisSettings) -> Path:
    assert analysis.classifier is not None
    path = Path(analysis.classifier)
    if path.exists():
        return path.absolute()
    if path.name != analysis.classifier or analysis.model_type not in ("300", "500"):
        raise ModelError(f"classifier {path} not found: check --model-path")
    return find(analysis.classifier)


def precision_of(layout: Layout, wanted: str, *, force: bool) -> str:
    """``wanted``, but for ``auto`` that of the run that is gone on with, where one has begun.

    Raises:
        ResumeRefused: a newer version left it, and ``force`` does not move it aside.
    """
    if wanted != "auto" or not any(layout.state.glob("*.done")):
        return wanted
    try:
        earlier = read_state(layout)
    except ResumeRefusedError:
        if not force:
            raise
        return wanted
    return str(earlier.analysis.get("precision", "auto")) if earlier else wanted
