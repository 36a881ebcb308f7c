"""From a data set to a lite encoder with its classifier and a report."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from virnucpro.classifier.contigs import ContigModel, contig_terms, fit_contig_model, with_tail
from virnucpro.classifier.files import classifier_to_bytes
from virnucpro.contracts import Device
from virnucpro.encoders.lite import LITE, lite_to_bytes, read_lite
from virnucpro.encoders.weights import read_safetensors
from virnucpro.errors import ResumeRefusedError
from virnucpro.events import Emit, StepProgress
from virnucpro.executors.signals import Interruption
from virnucpro.layout import lock_file
from virnucpro.metrics.classification import auroc, fit_temperature
from virnucpro.store.disk import Disk, hashed
from virnucpro.store.documents import SCHEMAS, parse_json, upgraded
from virnucpro.store.lock import locked
from virnucpro.training.data.dataset import Dataset, Part
from virnucpro.training.lite.genomes import GenomeSet, genome_set, measured_windows, read_mask
from virnucpro.training.lite.trainer import (
    LiteModel,
    LitePlan,
    LiteTrainingSettings,
    window_margins,
)
from virnucpro.training.run import TrainingFiles, begin_training, run_training
from virnucpro.version import __version__

MEASURED_PARTS: tuple[Part, ...] = ("validation", "test")
MEASURED_WINDOWS = 4000  # per part and chunk length
CONTIGS = {1: 2000, 2: 1600, 4: 1600, 8: 800, 16: 400, 32: 300}  # by their number of chunks


def training_files(root: Path) -> TrainingFiles:
    """Return the files of a training in the folder ``root``."""
    names = ("lite_encoder.safetensors", "lite.json", "lite_classifier.safetensors")
    return TrainingFiles(
        f"the training of the encoder in {root.name}",
        root,
        tuple(root / name for name in names),
        root / "lite.savepoint.pt",
        lock_file(root, "lite.json"),
    )


def fit_lite(
    dataset: Dataset,
    root: Path,
    settings: LiteTrainingSettings,
    show: Emit,
    progress: StepProgress,
    interruption: Interruption,
    *,
    start: Path | None = None,
    mask: Path | None = None,
    force: bool = False,
) -> Mapping[str, Any] | None:
    """Train the model, or continue an interrupted training with the same settings and data.

    ``start`` is the encoder of an earlier training, to go on from with the classifier beside it and
    a learning rate that does not fall. ``mask`` is a table of regions that are not trained on
    (:func:`read_mask`). ``force`` moves earlier files aside and starts over.

    Returns:
        The content of ``lite.json``; None if the same training was finished before.
    """
    disk, files = Disk(), training_files(root.absolute())
    dataset.require_content("records")
    facts = asdict(settings) | {"chunk lengths": list(dataset.lengths())}
    first, masked = None, None
    if start is not None:
        head, first = start.with_name(files.results[2].name), LiteModel(settings)
        first.load_state_dict(read_safetensors(head), strict=False)
        first.encoder, facts["started from"] = read_lite(start), hashed(start).sha256
        facts["started with"] = hashed(head).sha256
    if mask is not None:
        masked, facts["mask"] = read_mask(mask, dataset), hashed(mask).sha256
    digest, threads = hashed(dataset.description_file).sha256, torch.get_num_threads()
    # As it is read again: lists, not tuples.
    identity = json.loads(json.dumps({"settings": facts, "data_set": digest, "threads": threads}))
    disk.make_folder(files.place)
    with locked(files.lock, "this encoder", state=[files.savepoint]):
        try:
            # A finished training is the same one with any number of threads.
            report = upgraded("lite training", parse_json(files.results[1].read_bytes()), root)
            earlier: dict[str, Any] | None = _named({**report, "threads": threads})
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            earlier = None
        except ResumeRefusedError:
            if not force:
                raise
            earlier = None
        point = begin_training(files, _named(identity), earlier, disk, show, force=force)
        if point is None:
            return None
        progress.begin("reading genomes", 1)
        genomes = genome_set(dataset.records("train"), masked)
        progress.advance(1)
        plan = LitePlan(settings, genomes, dataset.lengths(), files.savepoint, first)
        point = run_training(plan, [Device("cpu", threads=threads)], show, interruption)
        model = LiteModel(settings)
        model.load_state_dict(point.best)
        results = _write_results(files, model.eval(), dataset, identity, disk, progress)
        disk.remove(files.savepoint)
    return results


def _named(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides the weights, by names for people."""
    settings = {name.replace("_", " "): value for name, value in identity["settings"].items()}
    return {**settings, "data set": identity["data_set"], "threads": identity["threads"]}


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
    lengths, default = dataset.lengths(), LiteTrainingSettings.learning_rate
    origin = {
        # Without paths, so that the same training gives the same files.
        "command": f"virnucpro train lite DATASET --output-dir DIR --steps {settings['steps']} "
        f"--seed {settings['seed']}"
        + (" --start-from ENCODER" if "started from" in settings else "")
        + (f" --learning-rate {rate:g}" if (rate := settings["learning_rate"]) != default else "")
        + (" --mask REGIONS" if "mask" in settings else "")
        + "".join(f" --more-of {shlex.quote(group)}" for group in settings["more_of"]),
        "version": __version__,
        "data_set": identity["data_set"],
    }
    disk.save(encoder, lite_to_bytes(model.encoder, origin))
    model.encoder = read_lite(encoder)
    progress.begin("measuring", len(MEASURED_PARTS))
    areas: dict[str, dict[str, Any]] = {part: {} for part in MEASURED_PARTS}
    temperature, contigs = None, {}
    for part in MEASURED_PARTS:
        genomes, measured = genome_set(dataset.records(part)), []
        for length in lengths:
            records, offsets = measured_windows(genomes, length, MEASURED_WINDOWS, 0)
            if len(records):
                margins = window_margins(model, genomes, records, offsets, length)
                virus = genomes.virus[records]
                measured.append((margins.astype(np.float64), virus))
                area = auroc(virus, measured[-1][0])
                amounts = {"chunks": len(margins), "virus": int(virus.sum())}
                areas[part][str(length)] = {**amounts, "auroc": area and round(area, 4)}
        if part == "validation" and measured:
            temperature = fit_temperature(*map(np.concatenate, zip(*measured, strict=True)))
            contigs = _contig_models(model, genomes, lengths, temperature)
        progress.advance(1)
    digest = hashed(encoder).sha256
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
        chunk_lengths=lengths,
        extra={**origin, "encoder_sha256": digest},
        temperature=temperature,
        contigs=contigs,
    )
    disk.save(classifier, content)
    return report


def _contig_models(
    model: LiteModel, genomes: GenomeSet, lengths: Sequence[int], temperature: float
) -> dict[int, ContigModel]:
    """Return how chunks make a contig, by their length; none where no record is long enough."""
    models = {}
    for length in lengths:
        terms: list[tuple[float, ...]] = []
        labels: list[bool] = []
        for count, contigs in CONTIGS.items():
            records, starts = measured_windows(genomes, count * length, contigs, 1)
            offsets = (starts[:, None] + np.arange(count) * length).ravel()
            margins = window_margins(model, genomes, np.repeat(records, count), offsets, length)
            rows = (margins.reshape(-1, count).astype(np.float64) / temperature).tolist()
            terms += map(contig_terms, rows)
            labels += genomes.virus[records].tolist()
        if terms:
            known, virus = np.array(terms), np.array(labels)
            models[length] = with_tail(fit_contig_model(known, virus), known, virus)
    return models
