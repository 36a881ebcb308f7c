"""What is evaluated, where it is written, and what of it is there already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from virnucpro.classifier.files import with_temperature
from virnucpro.contracts import Json
from virnucpro.errors import UsageError
from virnucpro.evaluation.plots import PLOTS
from virnucpro.evaluation.predictions import Level, Predictions, find_predictions
from virnucpro.evaluation.report import EvaluatedFiles
from virnucpro.layout import checkpoint_folder, lock_file
from virnucpro.store.disk import sha256_of
from virnucpro.store.documents import parse_json
from virnucpro.store.lock import locked
from virnucpro.store.work import (
    ExistingWork,
    WorkIdentity,
    foreign_files_refusal,
    read_identity,
)

# In the order in which they are written.
FILES = (*PLOTS, "evaluation.tsv", "evaluation.md", "evaluation.json")


@dataclass(frozen=True)
class EvaluationRequest:
    """What the user asked for.

    Attributes:
        predictions: an output directory of ``predict``, or one of its tables.
        output_dir: None for the default name.
        level: None for chunks, or for what the table holds.
        threshold: None for the calls of ``predict``.
        calibrate: the classifier to calibrate; None for none.
        output: the calibrated classifier.
        force: move aside what is there.
    """

    predictions: Path
    labels: Path
    output_dir: Path | None
    level: Level | None
    threshold: float | None
    calibrate: Path | None
    output: Path | None
    force: bool


@dataclass(frozen=True)
class PlannedEvaluation:
    """An evaluation whose files were found, before anything is written.

    Attributes:
        request: what the user asked for.
        predictions: the scores.
        files: the tables that are compared, with their digests.
        threshold: the score from which a row is called virus; None for the calls of ``predict``.
        folder: where the files are written.
    """

    request: EvaluationRequest
    predictions: Predictions
    files: EvaluatedFiles
    threshold: float | None
    folder: Path

    @property
    def identity(self) -> WorkIdentity:
        """What decides the results, for the comparison with earlier work."""
        settings = _settings(self.files.document(self.threshold))
        return WorkIdentity(f"the evaluation in {self.folder.name}", settings)

    @property
    def begun_file(self) -> Path:
        """A note that stands as long as the files are being written."""
        return checkpoint_folder(self.folder) / "evaluation.begun.json"

    def existing(self) -> tuple[ExistingWork, ExistingWork]:
        """Return what stands where the evaluation and the calibrated classifier are written."""
        return (
            _existing_evaluation(self.folder, self.begun_file),
            _existing_classifier(self.request, self.folder, self.begun_file),
        )


def plan_evaluation(request: EvaluationRequest) -> PlannedEvaluation:
    """Find the files of an evaluation.

    Raises:
        UsageError: there are no predictions, or no labels.
    """
    predictions = find_predictions(request.predictions, request.level)
    threshold = request.threshold
    if threshold is None and predictions.level != "contig":
        threshold = 0.5  # where predict decides about a frame and about a chunk
    name = f"{predictions.stem}_{predictions.level}_evaluation"
    if not request.labels.is_file():
        raise UsageError(f"--labels {request.labels} is not a file: check its path")
    files = EvaluatedFiles(
        str(predictions.table.path),
        sha256_of(predictions.table.path),
        str(request.labels),
        sha256_of(request.labels),
        predictions.level,
    )
    folder = request.output_dir or predictions.folder / name
    return PlannedEvaluation(request, predictions, files, threshold, folder)


def refuse_what_is_in_the_way(plan: PlannedEvaluation) -> None:
    """Refuse, without force, the files of somebody else, before anything is written.

    Raises:
        UsageError: files would be overwritten that are not ours.
    """
    existing, existing_classifier = plan.existing()
    if not plan.request.force:
        for work in (existing, existing_classifier):
            if refusal := foreign_files_refusal(work):
                raise refusal


@contextmanager
def locked_evaluation(plan: PlannedEvaluation) -> Iterator[None]:
    """Hold the locks of the evaluation and of the calibrated classifier.

    Raises:
        LockedError: another process works on one of them.
    """
    output = plan.request.output
    with ExitStack() as stack:
        stack.enter_context(locked(lock_file(plan.folder, FILES[-1]), "this evaluation"))
        if output is not None:
            lock = lock_file(output.parent, output.name)
            stack.enter_context(locked(lock, "this classifier"))
        yield


def _existing_evaluation(folder: Path, begun_file: Path) -> ExistingWork:
    """Return what the output directory holds of an earlier evaluation, or of something else."""
    files = [folder / name for name in FILES if (folder / name).exists()]
    existing = ExistingWork(folder, checkpoint_folder(folder) / "evaluation.previous")
    try:
        settings = _settings(parse_json((folder / "evaluation.json").read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        if read_identity(begun_file):  # it was interrupted while it wrote its files
            return replace(existing, own_files=files)
        return replace(existing, foreign_files=files)
    identity = WorkIdentity(f"the evaluation in {folder.name}", settings)
    return replace(existing, own_files=files, identity=identity, finished=True)


def _settings(document: Json) -> dict[str, Json]:
    """Return what decides the result. The same files may have moved."""
    return {
        "predictions": str(document["predictions"]["sha256"]),
        "labels": str(document["labels"]["sha256"]),
        "level": document["level"],
        "threshold": document["threshold"],
    }


def _existing_classifier(
    request: EvaluationRequest, folder: Path, begun_file: Path
) -> ExistingWork:
    """Return what stands in the place of the calibrated classifier.

    It is ours where an interrupted evaluation was about to write it, or where the classifier with
    the temperature that ``evaluation.json`` names has the same bytes.
    """
    output = request.output or Path()
    previous = checkpoint_folder(output.parent) / f"{output.name}.previous"
    existing = ExistingWork(output.parent, previous, option="--output")
    if request.output is None or request.calibrate is None or not output.exists():
        return existing
    begun = read_identity(begun_file)
    if begun is not None and begun.settings.get("output") == str(output.absolute()):
        return replace(existing, own_files=[output])
    try:
        document = parse_json((folder / "evaluation.json").read_bytes())
        temperature = float(document["calibration"]["temperature"])
        own = with_temperature(request.calibrate, temperature) == output.read_bytes()
    except (OSError, ValueError, KeyError, TypeError):
        own = False
    if own:
        return replace(existing, own_files=[output], finished=True)
    return replace(existing, foreign_files=[output])
