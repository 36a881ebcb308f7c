"""From a data set to a lite encoder with its classifier and a report."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.classifier.contigs import ContigModel, contig_terms, fit_contig_model
from virnucpro.classifier.files import classifier_to_bytes
from virnucpro.encoders.lite import LITE, lite_to_bytes, read_lite
from virnucpro.events import StepProgress
from virnucpro.executors.signals import Interruption
from virnucpro.formatting import clock_time
from virnucpro.metrics.classification import auroc
from virnucpro.metrics.temperature import fit_temperature
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.lock import locked
from virnucpro.store.migrations import current_schema
from virnucpro.store.work import check_work
from virnucpro.training.data.dataset import Dataset, Part
from virnucpro.training.lite.admission import (
    LiteFiles,
    check_encoder,
    existing_training,
    work_identity,
)
from virnucpro.training.lite.genomes import GenomeSet, load_genomes, measured_windows
from virnucpro.training.lite.masks import read_mask
from virnucpro.training.lite.trainer import (
    LiteModel,
    LiteTrainer,
    LiteTrainingSettings,
    window_margins,
)
from virnucpro.version import __version__

SAVE_SECONDS = 60.0
TIMED_STEPS = 5  # after which the time left is told
MEASURED_PARTS: tuple[Part, ...] = ("validation", "test")
MEASURED_WINDOWS = 4000  # per part and chunk length
CHUNKS_PER_CONTIG = (1, 2, 3, 4, 6, 10, 16)
CONTIGS_PER_COUNT = 600


class LiteDisplay(StepProgress, Protocol):
    """Shows the progress of a training."""

    def say(self, text: str) -> None:
        """Show a line."""
        ...


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
    table of regions that are not trained on (:func:`read_mask`). ``force`` moves earlier files to
    :attr:`LiteFiles.previous` and starts over.

    Returns:
        The content of ``lite.json``; None if the same training was finished before.

    Raises:
        VirNucProError: see ``virnucpro.errors``. The same command continues an interrupted
            training.
    """
    disk, files = disk or Disk(), LiteFiles(root.absolute())
    dataset.require_content("records")
    identity: dict[str, Any] = {
        "settings": asdict(settings) | {"chunk lengths": list(dataset.lengths())},
        "data_set": sha256_of(dataset.description_file) if dataset.description else "",
        "threads": torch.get_num_threads(),
    }
    first = None
    if start is not None:
        first = read_lite(start)
        identity["settings"]["started from"] = sha256_of(start)
    masked = None
    if mask is not None:
        masked = read_mask(mask, dataset)
        identity["settings"]["mask"] = sha256_of(mask)
    identity = json.loads(json.dumps(identity))  # as it is read again: lists, not tuples
    disk.make_folder(files.root)
    with locked(files.lock, "this encoder", state=[files.savepoint, files.previous]):
        disk.sweep(files.root)
        existing, state = existing_training(files, identity["threads"], force=force)
        admission = check_work(work_identity(files, identity), existing, disk, force=force)
        if admission.decision == "finished":
            check_encoder(files)
            return None
        progress.begin("reading genomes", 1)
        genomes = load_genomes(dataset, "train", masked)
        trainer = LiteTrainer(settings, genomes, dataset.lengths(), first)
        progress.advance(1)
        if state is not None and admission.decision == "continue":
            trainer.load_state(state)
        progress.begin("training", settings.steps - trainer.step)
        with interruption.held():  # leaving it raises Interrupted, after the state is saved
            began = saved = time.monotonic()
            first_step = trainer.step
            while trainer.step < settings.steps and interruption.number is None:
                trainer.advance()
                progress.advance(1)
                if trainer.step == first_step + TIMED_STEPS:
                    seconds = (time.monotonic() - began) / TIMED_STEPS
                    rest = clock_time(seconds * (settings.steps - trainer.step))
                    progress.say(f"{seconds:.2f} s per step: {rest} left")
                if time.monotonic() - saved > SAVE_SECONDS:
                    _save_state(files, identity, trainer, disk)
                    saved = time.monotonic()
            _save_state(files, identity, trainer, disk)
        report = _write_results(files, trainer.finish(), dataset, identity, disk, progress)
        disk.remove(files.savepoint)
    return report


def _save_state(
    files: LiteFiles, identity: Mapping[str, Any], trainer: LiteTrainer, disk: Disk
) -> None:
    buffer = io.BytesIO()
    torch.save({"identity": json.dumps(identity, sort_keys=True), **trainer.state()}, buffer)
    disk.save(files.savepoint, buffer.getvalue())


def _write_results(
    files: LiteFiles,
    model: LiteModel,
    dataset: Dataset,
    identity: Mapping[str, Any],
    disk: Disk,
    progress: StepProgress,
) -> Mapping[str, Any]:
    """Write the encoder, calibrate and measure on its rounded weights, and write the rest."""
    settings = identity["settings"]
    origin = {
        # Without paths, so that the same training gives the same files.
        "command": f"virnucpro train lite DATASET --output-dir DIR --steps {settings['steps']} "
        f"--seed {settings['seed']}"
        + (" --start-from ENCODER" if "started from" in settings else "")
        + (" --mask REGIONS" if "mask" in settings else ""),
        "version": __version__,
        "data_set": identity["data_set"],
    }
    disk.save(files.encoder, lite_to_bytes(model.encoder, origin))
    model.encoder = read_lite(files.encoder)
    progress.begin("measuring", len(MEASURED_PARTS))
    areas: dict[str, dict[str, Any]] = {}
    temperature, contigs = None, {}
    for part in MEASURED_PARTS:
        genomes = load_genomes(dataset, part)
        measured = _measure(model, genomes, dataset.lengths())
        if part == "validation" and measured:
            temperature = _calibrate(measured)
            contigs = {
                length: contig_model
                for length in dataset.lengths()
                if (contig_model := _fit_contigs(model, genomes, length, temperature))
            }
        areas[part] = {str(length): _area(*rows) for length, rows in measured.items()}
        progress.advance(1)
    digest = sha256_of(files.encoder)
    report = {
        "schema": current_schema("lite training"),
        **origin,
        **identity,
        "temperature": temperature,
        "chunk_auroc": areas,
        "encoder": digest,
    }
    disk.save(files.report, (json.dumps(report, indent=1, sort_keys=True) + "\n").encode())
    content = classifier_to_bytes(
        model.classifier_state(),
        encoders=(LITE.name,),
        chunk_lengths=dataset.lengths(),
        extra={**origin, "encoder_sha256": digest},
        temperature=temperature,
        contigs=contigs,
    )
    disk.save(files.classifier, content)
    return report


Measured = dict[int, tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]]


def _measure(model: LiteModel, genomes: GenomeSet, lengths: Sequence[int]) -> Measured:
    """Return margins and labels of windows of a part, by chunk length; nothing of an empty one."""
    measured: Measured = {}
    for length in lengths:
        records, offsets = measured_windows(genomes, length, MEASURED_WINDOWS, 0)
        if len(records):
            margins = window_margins(model, genomes, records, offsets, length)
            measured[length] = margins, genomes.virus[records]
    return measured


def _calibrate(measured: Measured) -> float:
    """Return the temperature for windows of all lengths."""
    margins = np.concatenate([rows for rows, _ in measured.values()]).astype(np.float64)
    virus = np.concatenate([rows for _, rows in measured.values()])
    return fit_temperature(margins, virus.astype(np.int64))


def _fit_contigs(
    model: LiteModel, genomes: GenomeSet, length: int, temperature: float
) -> ContigModel | None:
    """Return how chunks of ``length`` bases make a contig; None where no record is long enough."""
    terms: list[tuple[float, ...]] = []
    virus: list[bool] = []
    for count in CHUNKS_PER_CONTIG:
        records, starts = measured_windows(genomes, count * length, CONTIGS_PER_COUNT, 1)
        offsets = (starts[:, None] + np.arange(count) * length).ravel()
        margins = window_margins(model, genomes, np.repeat(records, count), offsets, length)
        rows = (margins.reshape(-1, count).astype(np.float64) / temperature).tolist()
        terms += map(contig_terms, rows)
        virus += genomes.virus[records].tolist()
    if not terms:
        return None
    return fit_contig_model(np.array(terms), np.array(virus))


def _area(margins: npt.NDArray[np.float32], virus: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Return how many windows there are, and their AUROC."""
    area = auroc(virus, margins.astype(np.float64))
    return {
        "chunks": len(margins),
        "virus": int(virus.sum()),
        "auroc": None if area is None else round(area, 4),
    }
