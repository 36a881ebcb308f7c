"""A prediction before it starts: the request, everything that it needs, and its stages."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from virnucpro.classifier.files import ClassifierInfo, inspect_classifier
from virnucpro.classifier.fit import check_fit
from virnucpro.contracts import Device, Json, Stage
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import cautions, check_precision, ignored_options, locate
from virnucpro.errors import ModelError, OutputError, UsageError
from virnucpro.events import Emit, Notice
from virnucpro.layout import MOLECULES, STDIN, Layout, RunLayout, stem_of
from virnucpro.models.store import check_digest, find_model
from virnucpro.precision import choose_precision
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.stages.chunking import ChunkingStage
from virnucpro.stages.consensus import ConsensusStage
from virnucpro.stages.embedding import EncoderSetup
from virnucpro.stages.merging import MergingStage
from virnucpro.stages.output import OutputStage
from virnucpro.stages.prediction import PredictionStage
from virnucpro.stages.splitting import SplittingStage
from virnucpro.stages.translation import TranslationStage
from virnucpro.store.disk import Disk, host_name
from virnucpro.store.guard import refuse_links
from virnucpro.store.stamps import FileStamp
from virnucpro.store.state import read_state

LONGEST_NAME = 255  # bytes, on every common file system
LONGEST_PID = 4194304  # Linux gives no higher process number


@dataclass(frozen=True)
class PredictionRequest:
    """What the user asked for. ``source`` is a path or ``-`` for standard input."""

    source: str
    output_dir: Path | None
    analysis: AnalysisSettings
    machine: MachineSettings
    resume: bool = False
    force: bool = False
    command: tuple[str, ...] = ()

    @property
    def layout(self) -> RunLayout:
        """Where everything goes; the default output directory is ``STEM_predictions``."""
        stem = stem_of(self.source)
        root = self.output_dir or Path(f"{stem}_predictions")
        length = self.analysis.resolved().chunk_length
        assert length is not None
        return RunLayout(root.absolute(), stem, length)


@dataclass(frozen=True)
class Prediction:
    """Everything that a prediction needs, found and checked before it starts."""

    source: Path
    layout: RunLayout
    disk: Disk
    analysis: AnalysisSettings
    machine: MachineSettings
    encoders: EncoderSetup
    classifier: ClassifierInfo

    def stages(self, seen: FileStamp, budgets: Mapping[str, int]) -> list[Stage]:
        """Return the list of stages. A new stage is added to the program here.

        ``seen`` is the stamp of the source from before its digest was taken: a stage that reads
        the source commits nothing when it has changed since. ``budgets`` are the batch budgets
        that an earlier start measured.
        """
        layout, disk, source, classifier = self.layout, self.disk, self.source, self.classifier
        analysis, machine = self.analysis, self.machine
        shortest = min(classifier.chunk_lengths or (layout.chunk_length,))
        calibrated = classifier.temperature is not None
        return [
            ChunkingStage(layout, disk, source, seen, analysis.duplicate_ids, shortest),
            TranslationStage(layout, disk),
            SplittingStage(layout, disk, analysis.sequences_per_file),
            *self.encoders.stages(layout, disk, machine, budgets),
            MergingStage(layout, disk),
            PredictionStage(layout, disk, classifier, machine.classifier_rows),
            ConsensusStage(layout, disk),
            OutputStage(layout, disk, source, seen, calibrated),
        ]

    def identity(self) -> dict[str, Json]:
        """Return everything that decides the results, beside the input."""
        return {
            "chunk length": self.layout.chunk_length,
            "sequences per file": self.analysis.sequences_per_file,
            "duplicate ids": self.analysis.duplicate_ids,
            "classifier": self.classifier.sha256,
            **self.encoders.identity(),
        }


def check_paths(request: PredictionRequest, layout: Layout) -> None:
    """Check that input and output directory can be used, before anything else.

    Raises:
        UsageError: input missing, unreadable, not a regular file, or one that the run would write.
        OutputError: the output directory cannot be written.
    """
    _check_name(request.source, layout)
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


def _check_name(source: str, layout: Layout) -> None:
    """Check that files can be named after the input.

    Raises:
        UsageError: nothing is left of its name, or the names would be too long.
    """
    if layout.stem in ("", ".", ".."):
        raise UsageError(
            f"input {source!r} has a name after which no results can be named: rename the file"
        )
    # While it is written, a file has a longer name; see virnucpro.store.disk.
    names = [f".{name}.{host_name()}.{LONGEST_PID}.tmp" for name in layout.top_names()]
    excess = max(len(os.fsencode(name)) for name in names) - LONGEST_NAME
    if excess > 0:
        raise UsageError(
            f"input {source} has a name that is {excess} bytes too long to name the results "
            f"after it: rename the file, or make a link with a shorter name"
        )


def prepare(
    request: PredictionRequest, layout: RunLayout, devices: Sequence[Device], disk: Disk, emit: Emit
) -> Prediction:
    """Find the models and check that they fit each other, before any work.

    Raises:
        ModelError: a model is missing, damaged, or does not fit the others.
        UsageError: settings that contradict each other.
    """
    analysis = request.analysis.resolved()
    assert analysis.chunk_length is not None
    _refuse_missing(analysis)
    nucleotide = locate(analysis.nucleotide_model, "nucleotide")
    protein = locate(analysis.protein_model, "protein")
    classifier = inspect_classifier(_classifier_path(analysis))
    check_digest(classifier.path, classifier.sha256)
    warnings = check_fit(
        classifier, nucleotide=nucleotide, protein=protein, chunk_length=analysis.chunk_length
    )
    for warning in warnings:
        emit(Notice("warning", warning))
    source = layout.spooled if request.source == STDIN else Path(request.source).absolute()
    requested = request.analysis.precision
    if not request.force:
        requested = requested_precision(layout, requested)
    precision = choose_precision(requested, devices)
    check_precision(precision, nucleotide, protein)
    sources = (nucleotide, protein)
    for text in (*cautions(sources), *ignored_by(sources, request.analysis, request.machine)):
        emit(Notice("warning", text))
    encoders = EncoderSetup(nucleotide, protein, precision, analysis.truncation)
    return Prediction(source, layout, disk, analysis, request.machine, encoders, classifier)


def ignored_by(
    sources: Sequence[EncoderSource], analysis: AnalysisSettings, machine: MachineSettings
) -> list[str]:
    """Return a sentence for each option that was given and has no effect on these encoders."""
    return ignored_options(
        sources,
        budgets={"nucleotide": machine.nucleotide_batch, "protein": machine.protein_batch},
        precision=analysis.precision,
        compile=machine.compile,
    )


def check_writable(layout: Layout) -> None:
    """Check what can be checked without writing; a missing folder is fine.

    Raises:
        UsageError: the output directory is a file.
        OutputError: it cannot be written.
        ResumeRefusedError: a folder of the run is a symbolic link.
    """
    for folder in (layout.root, layout.checkpoints):
        # Path.exists raises where a folder above it may not be searched.
        if not os.path.exists(folder):  # noqa: PTH110
            break
        if not folder.is_dir():
            raise UsageError(f"--output-dir {folder} is a file: name a folder")
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise OutputError(f"cannot write into {folder}: choose another --output-dir")
    if os.path.exists(layout.root):  # noqa: PTH110
        refuse_links(layout.state, layout.merged_folder, *map(layout.folder, MOLECULES))


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
            f"input {source} is not a regular file, and it is read more than once: pipe it to "
            f"--input - instead"
        )


def _refuse_missing(analysis: AnalysisSettings) -> None:
    """Name all models that a released model type lacks at once, not one per start.

    Raises:
        ModelError: several models are missing; a single one is reported where it is needed.
    """
    if analysis.model_type not in ("300", "500"):
        return
    missing = []
    for name in (analysis.nucleotide_model, analysis.protein_model, str(analysis.classifier)):
        if not Path(name).exists():
            try:
                find_model(name)
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
    return find_model(analysis.classifier)


def requested_precision(layout: Layout, requested: str) -> str:
    """Return ``requested``, but for ``auto`` the precision of the run that has begun, if any.

    Raises:
        ResumeRefusedError: a newer version left it.
    """
    if requested != "auto" or not any(layout.state.glob("*.done")):
        return requested
    earlier = read_state(layout)
    return str(earlier.analysis.get("precision", "auto")) if earlier else requested
