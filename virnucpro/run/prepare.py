"""A prediction before it starts: everything that it needs, and its stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from virnucpro.classifier.files import ClassifierInfo, inspect_classifier
from virnucpro.classifier.fit import check_fit
from virnucpro.contracts import Device, Json, Stage
from virnucpro.encoders.registry import cautions, check_precision, locate
from virnucpro.events import Emit, Notice
from virnucpro.io.pairs import InputFiles
from virnucpro.layout import STDIN, Layout, RunLayout
from virnucpro.models.store import check_digest
from virnucpro.precision import choose_precision, emulation_warnings
from virnucpro.run.features import Features
from virnucpro.run.request import PredictionRequest, classifier_path
from virnucpro.settings import AnalysisSettings, Cuts, MachineSettings
from virnucpro.stages.chunking import ChunkingStage
from virnucpro.stages.consensus import ConsensusStage
from virnucpro.stages.embedding import EncoderSetup
from virnucpro.stages.merging import MergingStage
from virnucpro.stages.output import OutputStage
from virnucpro.stages.prediction import PredictionStage
from virnucpro.stages.splitting import SplittingStage
from virnucpro.stages.translation import TranslationStage
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import has_receipts
from virnucpro.store.legacy import is_legacy_run, legacy_frames_per_file
from virnucpro.store.stamps import HashedFile
from virnucpro.store.state import INTERLEAVED, MATES, read_state

FRAMES_PER_FILE = "frames per file"  # in the state of a run


@dataclass(frozen=True)
class Prediction:
    """Everything that a prediction needs, found and checked before it starts.

    ``frames_per_file`` is the size of the split files of a run that version 1 began.
    """

    source: InputFiles
    layout: RunLayout
    disk: Disk
    analysis: AnalysisSettings
    machine: MachineSettings
    encoders: EncoderSetup
    classifier: ClassifierInfo
    cuts: Cuts
    frames_per_file: int | None = None

    @property
    def dedup(self) -> bool:
        """Whether identical sequences are embedded once."""
        return self.analysis.dedup is True

    @property
    def features(self) -> Features:
        """How long features are kept; see :class:`virnucpro.run.engine.Run`."""
        if self.machine.no_features:
            return "dropped"
        return "auto" if self.machine.remove_intermediate else "kept"

    def stages(self, seen: Sequence[HashedFile], budgets: Mapping[str, int]) -> list[Stage]:
        """Return the list of stages. A new stage is added to the program here.

        ``seen`` are the files of the source as they were hashed: a stage that reads them commits
        nothing when one has changed since. ``budgets`` are the batch budgets that an earlier start
        measured.
        """
        layout, disk, source, classifier = self.layout, self.disk, self.source, self.classifier
        analysis, machine, encoders = self.analysis, self.machine, self.encoders
        shortest = min(classifier.chunk_lengths or (layout.chunk_length,))
        calibrated = classifier.temperature is not None
        contig_model = classifier.contigs.get(layout.chunk_length)
        return [
            ChunkingStage(layout, disk, source, seen, analysis.duplicate_ids, shortest),
            TranslationStage(layout, disk, encoders.nucleotide.reading),
            SplittingStage(
                layout,
                disk,
                analysis.sequences_per_file,
                self.frames_per_file,
                encoders.molecules,
                self.dedup,
            ),
            *encoders.stages(layout, disk, machine, budgets),
            MergingStage(layout, disk, encoders.molecules),
            PredictionStage(layout, disk, classifier, machine.classifier_rows, self.dedup),
            ConsensusStage(layout, disk),
            OutputStage(layout, disk, source, seen, calibrated, contig_model, self.cuts),
        ]

    def of(self, request: PredictionRequest) -> Prediction:
        """Return the prediction of another input with the same models and settings."""
        return replace(
            self,
            source=source_of(request),
            layout=request.layout,
            analysis=replace(self.analysis, dedup=finds_copies(request)),
            frames_per_file=kept_frames_per_file(request),
        )

    def _most_frames(self) -> str:
        most = self.analysis.sequences_per_file
        return "by their number" if most is None else f"by their number, at most {most:,}"

    def identity(self) -> dict[str, Json]:
        """Return everything that decides the results, beside the input."""
        return {
            "chunk length": self.layout.chunk_length,
            FRAMES_PER_FILE: self.frames_per_file or self._most_frames(),
            "duplicate ids": self.analysis.duplicate_ids,
            "classifier": self.classifier.file.sha256,
            **self.encoders.identity(),
            # Versions that embedded each of them did not say so.
            **({"identical sequences": "embedded once"} if self.dedup else {}),
            **({MATES: INTERLEAVED} if self.source.interleaved else {}),
        }


def prepare(
    requests: Sequence[PredictionRequest], devices: Sequence[Device], disk: Disk, emit: Emit
) -> Prediction:
    """Find the models and check that they fit each other, before any work.

    Returns the prediction of the first request. The others differ only in their inputs: see
    :meth:`Prediction.of`.

    Raises:
        ModelError: a model is missing, damaged, or does not fit the others.
        UsageError: settings that contradict each other.
    """
    request = requests[0]
    analysis = request.analysis.resolved()
    assert analysis.chunk_length is not None
    nucleotide = locate(analysis.nucleotide_model, "nucleotide")
    frames = nucleotide.reading == "open frames"
    protein = locate(analysis.protein_model, "protein") if frames else None
    sources = (nucleotide,) if protein is None else (nucleotide, protein)
    classifier = inspect_classifier(classifier_path(analysis))
    check_digest(classifier.file.path, classifier.file.sha256)
    cuts = request.cuts.cuts(calibrated=classifier.temperature is not None)
    for warning in check_fit(classifier, sources, analysis.chunk_length):
        emit(Notice("warning", warning))
    requested = request.analysis.precision
    if not request.force:
        for each in requests:
            requested = requested_precision(each.layout, requested)
    precision = choose_precision(requested, devices)
    check_precision(precision, *sources)
    for text in (*cautions(sources), *emulation_warnings(precision, devices)):
        emit(Notice("warning", text))
    encoders = EncoderSetup(nucleotide, protein, precision, analysis.truncation)
    source, layout, machine = source_of(request), request.layout, request.machine
    prediction = Prediction(source, layout, disk, analysis, machine, encoders, classifier, cuts)
    return prediction.of(request)


def source_of(request: PredictionRequest) -> InputFiles:
    """Return the files that the stages read."""
    if request.source == STDIN:
        return InputFiles(request.layout.spooled, interleaved=request.interleaved)
    mates = None if request.mates is None else Path(request.mates).absolute()
    return InputFiles(Path(request.source).absolute(), mates, interleaved=request.interleaved)


def finds_copies(request: PredictionRequest) -> bool:
    """Return whether identical sequences are embedded once.

    Where nothing is said, a run that has begun goes on as it began: one of an earlier version of
    the program embeds each of them, so that what it has embedded counts.

    Raises:
        ResumeRefusedError: a newer version left the run.
    """
    layout, chosen = request.layout, request.analysis.dedup
    if chosen is not None or request.force:
        return chosen is not False
    if earlier := read_state(layout):
        return "identical sequences" in earlier.analysis
    return not is_legacy_run(layout)


def kept_frames_per_file(request: PredictionRequest) -> int | None:
    """Return the size of the split files of a run that version 1 began; None for any other.

    Raises:
        ResumeRefusedError: a newer version left the run.
    """
    if request.force:
        return None
    if earlier := read_state(request.layout):
        kept = earlier.analysis.get(FRAMES_PER_FILE)
        return kept if isinstance(kept, int) else None
    return legacy_frames_per_file(request.layout) if is_legacy_run(request.layout) else None


def requested_precision(layout: Layout, requested: str) -> str:
    """Return ``requested``, but for ``auto`` the precision of the run that has begun, if any.

    Raises:
        ResumeRefusedError: a newer version left it.
    """
    if requested != "auto" or not has_receipts(layout):
        return requested
    earlier = read_state(layout)
    return str(earlier.analysis.get("precision", "auto")) if earlier else requested
