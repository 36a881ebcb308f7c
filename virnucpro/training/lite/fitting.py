"""From a data set to a lite encoder with its classifier and a report."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.classifier.contigs import ContigModel, contig_terms, fit_contig_model, with_tail
from virnucpro.classifier.files import classifier_to_bytes
from virnucpro.contracts import Device
from virnucpro.encoders.lite import LITE, lite_to_bytes, read_lite
from virnucpro.errors import ResumeRefusedError
from virnucpro.events import StepProgress
from virnucpro.executors.signals import Interruption
from virnucpro.formatting import clock_time
from virnucpro.layout import checkpoint_folder, lock_file
from virnucpro.metrics.classification import auroc
from virnucpro.metrics.temperature import fit_temperature
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import SCHEMAS, parse_json, upgraded
from virnucpro.store.lock import locked
from virnucpro.training.data.dataset import Dataset, Part
from virnucpro.training.lite.genomes import GenomeSet, load_genomes, measured_windows, read_mask
from virnucpro.training.lite.trainer import (
    LiteModel,
    LitePlan,
    LiteTrainingSettings,
    window_margins,
)
from virnucpro.training.progress import EpochProgress, ReportEvent, TrainingEvent
from virnucpro.training.run import TrainingFiles, begin_training, run_training
from virnucpro.training.savepoint import Savepoint
from virnucpro.version import __version__

TIMED_STEPS = 5  # after which the time left is told
MEASURED_PARTS: tuple[Part, ...] = ("validation", "test")
MEASURED_WINDOWS = 4000  # per part and chunk length
CONTIGS = {1: 2000, 2: 1600, 4: 1600, 8: 800, 16: 400, 32: 300}  # by their number of chunks
Measured = dict[int, tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]]
"""Margins and labels of windows, by chunk length."""


class LiteDisplay(StepProgress, Protocol):
    """Shows the progress of a training."""

    def say(self, text: str) -> None:
        """Show a line."""
        ...


def training_files(root: Path) -> TrainingFiles:
    """Return the files of a training in the folder ``root``."""
    names = ("lite_encoder.safetensors", "lite.json", "lite_classifier.safetensors")
    return TrainingFiles(
        f"the training of the encoder in {root.name}",
        root,
        tuple(root / name for name in names),
        root / "lite.savepoint.pt",
        lock_file(root, "lite.json"),
        checkpoint_folder(root) / "lite.previous",
    )


def fit_lite(
    dataset: Dataset,
    root: Path,
    settings: LiteTrainingSettings,
    progress: LiteDisplay,
    *,
    interruption: Interruption,
    start: Path | None = None,
    mask: Path | None = None,
    force: bool = False,
    disk: Disk | None = None,
) -> Mapping[str, Any] | None:
    """Train the model, or continue an interrupted training with the same settings and data.

    ``start`` is the encoder of an earlier training, whose weights are the first ones. ``mask`` is a
    table of regions that are not trained on (:func:`read_mask`). ``force`` moves earlier files
    aside and starts over.

    Returns:
        The content of ``lite.json``; None if the same training was finished before.

    Raises:
        VirNucProError: see ``virnucpro.errors``. The same command continues an interrupted
            training.
    """
    disk, files = disk or Disk(), training_files(root.absolute())
    dataset.require_content("records")
    facts = asdict(settings) | {"chunk lengths": list(dataset.lengths())}
    first, masked = None, None
    if start is not None:
        first, facts["started from"] = read_lite(start), sha256_of(start)
    if mask is not None:
        masked, facts["mask"] = read_mask(mask, dataset), sha256_of(mask)
    digest, threads = sha256_of(dataset.description_file), torch.get_num_threads()
    identity = {"settings": facts, "data_set": digest, "threads": threads}
    identity = json.loads(json.dumps(identity))  # as it is read again: lists, not tuples
    disk.make_folder(files.place)
    with locked(files.lock, "this encoder", state=[files.savepoint, files.previous]):
        disk.sweep(files.place)
        earlier = _finished_identity(files, threads, force=force)
        named = _named(identity)
        point = begin_training(files, named, earlier, disk, lambda _: None, force=force)
        if point is None:
            _check_encoder(files)
            return None
        progress.begin("reading genomes", 1)
        genomes = load_genomes(dataset, "train", masked)
        progress.advance(1)
        plan = LitePlan(settings, genomes, dataset.lengths(), files.savepoint, first)
        device = Device("cpu", threads=threads)
        report = _steps_report(progress, point, settings.steps)
        point = run_training(plan, [device], report, interruption, disk)
        model = LiteModel(settings)
        model.load_state_dict(point.best)
        results = _write_results(files, model.eval(), dataset, identity, disk, progress)
        disk.remove(files.savepoint)
    return results


def _named(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides the weights, by names for people."""
    settings = {name.replace("_", " "): value for name, value in identity["settings"].items()}
    return {**settings, "data set": identity["data_set"], "threads": identity["threads"]}


def _finished_identity(files: TrainingFiles, threads: int, *, force: bool) -> dict[str, Any] | None:
    """Return what decided the weights of a finished training, with any number of ``threads``.

    Raises:
        ResumeRefusedError: a newer version wrote the report, and ``force`` does not move it aside.
    """
    _, report, _ = files.results
    try:
        facts = upgraded("lite training", parse_json(report.read_bytes()), report)
        return _named({**facts, "threads": threads})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    except ResumeRefusedError:
        if not force:
            raise
        return None


def _check_encoder(files: TrainingFiles) -> None:
    """Check that the encoder of a finished training is the one that was trained.

    Raises:
        ResumeRefusedError: it was changed or removed.
    """
    encoder, report, _ = files.results
    digest = parse_json(report.read_bytes()).get("encoder")
    if not encoder.exists() or sha256_of(encoder) != digest:
        raise ResumeRefusedError(
            f"{encoder} is not the file that was trained here: put it back, or train again "
            f"with --force"
        )


def _steps_report(progress: LiteDisplay, point: Savepoint, steps: int) -> ReportEvent:
    """Return a function that shows the steps of the training's only epoch, and the time left."""
    first = shown = steps if point.finished else point.batch
    progress.begin("training", steps - first)
    began, told = time.monotonic(), False

    def report(event: TrainingEvent) -> None:
        nonlocal shown, told
        seen = event.seen if isinstance(event, EpochProgress) else steps
        progress.advance(seen - shown)
        shown = seen
        if not told and seen - first >= TIMED_STEPS:
            told = True
            seconds = (time.monotonic() - began) / (seen - first)
            progress.say(f"{seconds:.2f} s per step: {clock_time(seconds * (steps - seen))} left")

    return report


def _write_results(
    files: TrainingFiles,
    model: LiteModel,
    dataset: Dataset,
    identity: Mapping[str, Any],
    disk: Disk,
    progress: StepProgress,
) -> Mapping[str, Any]:
    """Write the encoder, calibrate and measure on its rounded weights, and write the rest."""
    settings, (encoder, report_file, classifier) = identity["settings"], files.results
    default = LiteTrainingSettings.learning_rate
    origin = {
        # Without paths, so that the same training gives the same files.
        "command": f"virnucpro train lite DATASET --output-dir DIR --steps {settings['steps']} "
        f"--seed {settings['seed']}"
        + (" --start-from ENCODER" if "started from" in settings else "")
        + (f" --learning-rate {rate:g}" if (rate := settings["learning_rate"]) != default else "")
        + (" --mask REGIONS" if "mask" in settings else ""),
        "version": __version__,
        "data_set": identity["data_set"],
    }
    disk.save(encoder, lite_to_bytes(model.encoder, origin))
    model.encoder = read_lite(encoder)
    progress.begin("measuring", len(MEASURED_PARTS))
    areas: dict[str, dict[str, Any]] = {}
    temperature, contigs = None, {}
    for part in MEASURED_PARTS:
        genomes = load_genomes(dataset, part)
        measured = _measure(model, genomes, dataset.lengths())
        if part == "validation" and measured:
            margins, virus = map(np.concatenate, zip(*measured.values(), strict=True))
            temperature = fit_temperature(margins, virus)
            contigs = {
                length: contig_model
                for length in dataset.lengths()
                if (contig_model := _fit_contigs(model, genomes, length, temperature))
            }
        areas[part] = {
            str(length): {
                "chunks": len(margins),
                "virus": int(virus.sum()),
                "auroc": (area := auroc(virus, margins)) and round(area, 4),
            }
            for length, (margins, virus) in measured.items()
        }
        progress.advance(1)
    digest = sha256_of(encoder)
    report = {
        "schema": SCHEMAS["lite training"],
        **origin,
        **identity,
        "temperature": temperature,
        "chunk_auroc": areas,
        "encoder": digest,
    }
    disk.save(report_file, (json.dumps(report, indent=1, sort_keys=True) + "\n").encode())
    content = classifier_to_bytes(
        model.classifier_state(),
        encoders=(LITE.name,),
        chunk_lengths=dataset.lengths(),
        extra={**origin, "encoder_sha256": digest},
        temperature=temperature,
        contigs=contigs,
    )
    disk.save(classifier, content)
    return report


def _measure(model: LiteModel, genomes: GenomeSet, lengths: Sequence[int]) -> Measured:
    """Return margins and labels of windows of a part, by chunk length; nothing of an empty one."""
    measured: Measured = {}
    for length in lengths:
        records, offsets = measured_windows(genomes, length, MEASURED_WINDOWS, 0)
        if len(records):
            margins = window_margins(model, genomes, records, offsets, length)
            measured[length] = margins.astype(np.float64), genomes.virus[records]
    return measured


def _fit_contigs(
    model: LiteModel, genomes: GenomeSet, length: int, temperature: float
) -> ContigModel | None:
    """Return how chunks of ``length`` bases make a contig; None where no record is long enough."""
    terms: list[tuple[float, ...]] = []
    virus: list[bool] = []
    for count, contigs in CONTIGS.items():
        records, starts = measured_windows(genomes, count * length, contigs, 1)
        offsets = (starts[:, None] + np.arange(count) * length).ravel()
        margins = window_margins(model, genomes, np.repeat(records, count), offsets, length)
        rows = (margins.reshape(-1, count).astype(np.float64) / temperature).tolist()
        terms += map(contig_terms, rows)
        virus += genomes.virus[records].tolist()
    if not terms:
        return None
    known, labels = np.array(terms), np.array(virus)
    return with_tail(fit_contig_model(known, labels), known, labels)
