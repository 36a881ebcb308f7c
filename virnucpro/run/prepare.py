"""What a run of ``predict`` is made of: its models, what decides its results, and its stages."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace

import numpy as np

from virnucpro.classifier.calibration import FoundCalibration, find_calibrations
from virnucpro.classifier.contigs import ContigModel
from virnucpro.classifier.files import ClassifierInfo, check_fit, inspect_classifier
from virnucpro.contracts import Device, Molecule
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import family_named, locate
from virnucpro.errors import UsageError, VirNucProError
from virnucpro.events import Notice, Show
from virnucpro.io.inputs import InputFiles
from virnucpro.layout import Layout
from virnucpro.models.store import check_digest
from virnucpro.precision import choose_precision
from virnucpro.run.recipe import Recipe
from virnucpro.run.request import PredictionRequest, classifier_path
from virnucpro.run.workers import warm_up_workers
from virnucpro.settings import NAMES_OF_MODELS, AnalysisSettings, trained
from virnucpro.stages.chunking import ChunkingStage
from virnucpro.stages.embedding import EncoderSetup
from virnucpro.stages.merging import MergingStage
from virnucpro.stages.output import result_stages
from virnucpro.stages.prediction import PredictionStage
from virnucpro.stages.splitting import SplittingStage
from virnucpro.stages.translation import TranslationStage
from virnucpro.store.disk import Disk
from virnucpro.store.hashed import HashedFile
from virnucpro.store.ledger import has_receipts
from virnucpro.store.work import RunIdentity, read_identity, read_state
from virnucpro.workers.scheduler import Workers

# The chunk length of sequences that usually have at most so many bases. Above 330, one chunk of 500
# tells viruses apart better than two of 300: AUROC 0.856 and 0.847 for the pieces outside of 350
# bases (examples/lite/heldout.py with LENGTHS = (350,)).
LONGEST_USUAL = {150: 250, 300: 330}
BASES_LOOKED_AT = 20_000_000  # for the usual length of reads; 133,000 of 150 bases


@dataclass(frozen=True)
class Models:
    """The models of a command; ``calibrations`` are by chunk length."""

    encoders: EncoderSetup
    classifier: ClassifierInfo
    calibrations: Mapping[int, FoundCalibration]

    def calibration(self, length: int) -> FoundCalibration | None:
        """Return that of chunks of so many bases."""
        return self.calibrations.get(trained(length, self.calibrations))

    def rating(self, length: int) -> tuple[bool, ContigModel | None]:
        """Return whether scores of such chunks are calibrated, and what puts a record's together.

        A calibration of the user's own comes before those of the classifier.
        """
        if found := self.calibration(length):
            return True, found.contigs
        known = self.classifier.contigs
        return self.classifier.temperature is not None, known.get(trained(length, known))


def find_models(requests: Sequence[PredictionRequest], workers: Workers, show: Show) -> Models:
    """Find the models and check that they fit each other, before any work.

    The requests differ only in their inputs and output directories. Workers begin meanwhile; nodes
    that lack a file of the models are left out.
    """
    warm_up_workers(workers, requests)
    request, devices = requests[0], workers.pool.devices
    analysis = request.settings.analysis.resolved()
    assert analysis.chunk_length is not None
    layouts = [] if request.force else [each.layout for each in requests]
    encoders = find_encoders(analysis, layouts, devices, show)
    sources = [*encoders.sources.values()]
    classifier = inspect_classifier(classifier_path(analysis))
    check_digest(classifier.file.path, classifier.file.sha256)
    for warning in check_fit(classifier, sources, analysis.chunk_length):
        show(Notice("warning", warning))
    paths = [file.path for source in sources for file in source.files]
    workers.pool.require({path: path.stat().st_size for path in paths})
    digests = [classifier.file.sha256, *(source.sha256 for source in sources)]
    name = classifier.file.path.name
    models = Models(
        encoders, classifier, find_calibrations(name, digests, encoders.precision, show)
    )
    calibrated, _ = models.rating(analysis.chunk_length)
    request.settings.thresholds.check(calibrated=calibrated)
    return models


def find_encoders(
    analysis: AnalysisSettings, layouts: Sequence[Layout], devices: Sequence[Device], show: Show
) -> EncoderSetup:
    """Find the encoders and choose their precision; ``auto`` is that of the first run that began.

    Warns of encoders whose results need a caution, and refuses a precision that one does not have.
    """
    nucleotide = locate(analysis.nucleotide_model, "nucleotide")
    sources: dict[Molecule, EncoderSource] = {"nucleotide": nucleotide}
    if nucleotide.reading == "open frames":
        sources["protein"] = locate(analysis.protein_model, "protein")
    requested = analysis.precision
    if requested == "auto":
        states = (read_state(layout) for layout in layouts if has_receipts(layout))
        if begun := next(filter(None, states), None):
            requested = str(begun.decided_by.get("precision", "auto"))
    precision = choose_precision(requested, devices)
    families = [family_named(source.family) for source in sources.values()]
    for source, family in zip(sources.values(), families, strict=True):
        if family.precisions and precision not in family.precisions:
            raise UsageError(
                f"{source.name} cannot be computed in {precision}: use --precision "
                f"{' or '.join(family.precisions)}"
            )
    for text in dict.fromkeys(family.caution for family in families if family.caution):
        show(Notice("warning", text))
    return EncoderSetup(sources, precision, analysis.truncation)


def settled(request: PredictionRequest, source: InputFiles, show: Show) -> PredictionRequest:
    """Return the request with the chunk length that suits its records, where it leaves that open.

    A run that has begun goes on with its own. ``source`` is where the input can be read now.
    """
    layout, lengths = request.layout, request.settings.analysis.lengths_to_choose
    if not lengths:
        return request
    begun = None if request.force or not has_receipts(layout) else read_identity(layout)
    length = begun.chunk_length if begun else 0
    reason = "with which this run began"
    if trained(length, lengths) not in lengths:
        usual, longest = _usual_lengths(source, limit=shutil.disk_usage(layout.root).free // 2)
        length = min(n for n in lengths if usual <= LONGEST_USUAL.get(n, usual))
        if length + 1 in (usual, longest):
            length += 1
        reason = f"as half of the bases are in sequences of at most {usual:,} (-e: another length)"
        if not longest:  # no base was read; why is said where the input is cut into chunks
            reason = ""
    if reason:
        show(Notice("info", f"chunks of {length} bases, {reason}"))
    return replace(request, settings=request.settings.with_values({"chunk_length": length}))


def _usual_lengths(source: InputFiles, *, limit: int) -> tuple[int, int]:
    """Return the usual length of sequences, in bases, and the greatest.

    Half of the bases are in sequences of at most the usual length. The records with the first
    ``BASES_LOOKED_AT`` bases count, and their mates apart. What is wrong with an input is said
    where it is cut into chunks: here, the records before it count.
    """
    found, bases = list[int](), 0
    with suppress(VirNucProError), closing(iter(source.records(limit=limit))) as records:
        for record in records:
            found += map(len, record.sequences)
            bases += sum(map(len, record.sequences))
            if bases >= BASES_LOOKED_AT:
                break
    lengths = np.sort([*found, 0])
    return int(lengths[np.searchsorted(lengths.cumsum(), lengths.sum() / 2)]), int(lengths[-1])


def identity(
    request: PredictionRequest,
    models: Models,
    seen: Sequence[HashedFile],
    earlier: RunIdentity | None,
) -> RunIdentity:
    """Return everything that decides the results of a run on an input as it was hashed.

    Where nothing is said, a run that has begun goes on as it began, with what decided ``earlier``.
    """
    analysis = asdict(request.settings.analysis.resolved())
    own = {name: value for name, value in analysis.items() if name not in NAMES_OF_MODELS}
    exactly = earlier.exact_frames_per_file if earlier else None
    if own["dedup"] is None:
        own["dedup"] = earlier is None or earlier.dedup
    if exactly:
        own["sequences_per_file"] = None
    return RunIdentity(
        input=seen[0].sha256,
        second_input=seen[1].sha256 if len(seen) > 1 else None,
        interleaved=request.interleaved,
        exact_frames_per_file=exactly,
        classifier=models.classifier.file.sha256,
        **own | models.encoders.identity(),
    )


def prediction_recipe(
    request: PredictionRequest,
    models: Models,
    disk: Disk,
    seen: Sequence[HashedFile],
    own: RunIdentity,
) -> Recipe:
    """Return the stages. A new one that does not follow from scores is added to the program here.

    ``seen`` are the files of the input as they were hashed, ``own`` is what decides the results.
    """
    layout, source, settings = request.layout, request.input_files, request.settings
    classifier, encoders = models.classifier, models.encoders
    molecules = tuple(encoders.sources)
    lengths = classifier.chunk_lengths or (layout.chunk_length,)
    calibrated, model = models.rating(layout.chunk_length)
    keep = not settings.machine.remove_intermediate
    return Recipe(
        before=[
            ChunkingStage(layout, disk, source, own.duplicate_ids, lengths),
            TranslationStage(layout, disk, encoders.sources["nucleotide"].reading),
            SplittingStage(
                layout,
                disk,
                sequences_per_file=own.sequences_per_file,
                exactly=own.exact_frames_per_file,
                molecules=molecules,
                dedup=own.dedup,
            ),
        ],
        embedding=encoders.stages(layout, disk, settings.machine),
        merging=MergingStage(layout, disk, molecules, classifier, keep),
        joining=[PredictionStage(layout, disk, own.dedup)],
        results=result_stages(layout, disk, source, seen, calibrated, model, settings.thresholds),
    )
