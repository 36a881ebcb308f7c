"""From a data set to a lite encoder with its classifier and a report."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from virnucpro.classifier.contigs import (
    PENALTY,
    ContigModel,
    Floats,
    contig_terms,
    fit_contig_model,
)
from virnucpro.classifier.files import ClassifierInfo, classifier_to_bytes, inspect_classifier
from virnucpro.classifier.mixture import with_distributions
from virnucpro.contracts import Device
from virnucpro.encoders.lite import LITE, lite_to_bytes, read_lite
from virnucpro.encoders.lite_network import LiteNetwork
from virnucpro.encoders.weights import read_safetensors
from virnucpro.errors import ResumeRefusedError
from virnucpro.events import Emit, StepProgress
from virnucpro.layout import lock_file
from virnucpro.metrics.classification import auroc, fit_temperature
from virnucpro.store.disk import Disk, telling
from virnucpro.store.documents import SCHEMAS, in_schema, parse_json
from virnucpro.store.hashed import hashed
from virnucpro.store.lock import locked
from virnucpro.training.data.dataset import Dataset, Part
from virnucpro.training.lite.genomes import (
    GenomeSet,
    WindowSampler,
    genome_set,
    measured_windows,
    read_mask,
)
from virnucpro.training.lite.trainer import (
    OFTENER,
    LiteLoop,
    LiteModel,
    LiteTrainingSettings,
    window_rows,
)
from virnucpro.training.run import TrainingFiles, begin_training, run_training
from virnucpro.version import __version__

MEASURED_PARTS: tuple[Part, ...] = ("validation", "test")
MEASURED_WINDOWS = 4000  # per part and chunk length
HEAD_WINDOWS = 24_000  # per chunk length, for the classifier; three times as many were not better
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
    *,
    force: bool = False,
) -> Mapping[str, Any] | None:
    """Train the model, or continue an interrupted training with the same settings and data.

    A data set without validation records of both labels leaves the calibration of an earlier
    training as it was. ``force`` removes the earlier results and starts over.

    Returns:
        The content of ``lite.json``; None if the same training was finished before.
    """
    files = training_files(root.absolute())
    disk = Disk(files.place)
    dataset.require_content("records")
    first, started, masked, start, mask = None, None, None, settings.start_from, settings.mask
    if start is not None:
        head = start.with_name(files.results[2].name)
        started = inspect_classifier(head)
        encoder = read_lite(start)
        settings = replace(settings, hidden=started.model.hidden, shape=encoder.shape)
        first = LiteModel(settings)
        first.load_state_dict(read_safetensors(head), strict=False)
        first.encoder = encoder
    facts = asdict(settings) | {"chunk lengths": list(dataset.lengths())}
    del facts["start_from"], facts["mask"]  # these are paths
    if settings.shape.groups == 1:  # as in trainings that were begun before there were groups
        del facts["shape"]["groups"]
    if start is not None:
        facts["started from"], facts["started with"] = hashed(start).sha256, hashed(head).sha256
    if mask is not None:
        masked, facts["mask"] = read_mask(mask, dataset), hashed(mask).sha256
    digest, threads = hashed(dataset.description_file).sha256, torch.get_num_threads()
    # As it is read again: lists, not tuples.
    identity = json.loads(json.dumps({"settings": facts, "data_set": digest, "threads": threads}))
    with locked(files.lock, "this encoder"), telling(disk, show):
        try:
            # A finished training is the same one with any number of threads.
            report = in_schema("lite training", parse_json(files.results[1].read_bytes()), root)
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
        loop = partial(LiteLoop, files.savepoint, settings, genomes, dataset.lengths(), first)
        devices = [Device("cpu", threads=threads)]
        point = run_training(loop, files.savepoint, devices, show)
        model = LiteModel(settings)
        model.load_state_dict(point.best)
        disk.save(files.results[0], lite_to_bytes(model.encoder, _origin(identity)))
        encoder = read_lite(files.results[0])  # its weights are rounded now
        model = _with_linear_head(encoder, settings, genomes, dataset.lengths())
        results = _write_results(files, model, dataset, identity, started, disk, progress)
        disk.remove(files.savepoint)
    return results


def _named(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides the weights, by names for people."""
    settings = {name.replace("_", " "): value for name, value in identity["settings"].items()}
    return {**settings, "data set": identity["data_set"], "threads": identity["threads"]}


def _origin(identity: Mapping[str, Any]) -> dict[str, str]:
    """Return what the files of a training say about how they were made."""
    settings, default = identity["settings"], LiteTrainingSettings.learning_rate
    return {
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


def _write_results(
    files: TrainingFiles,
    model: LiteModel,
    dataset: Dataset,
    identity: Mapping[str, Any],
    started: ClassifierInfo | None,
    disk: Disk,
    progress: StepProgress,
) -> Mapping[str, Any]:
    """Calibrate and measure the finished model; write the report and the classifier."""
    origin, lengths = _origin(identity), dataset.lengths()
    encoder, report_file, classifier = files.results
    progress.begin("measuring", len(MEASURED_PARTS))
    areas: dict[str, dict[str, Any]] = {part: {} for part in MEASURED_PARTS}
    temperature, contigs = (started.temperature, started.contigs) if started else (None, {})
    for part in MEASURED_PARTS:
        genomes, measured = genome_set(dataset.records(part)), []
        for length in lengths:
            records, offsets = measured_windows(genomes, length, MEASURED_WINDOWS, 0)
            if len(records):
                logits = window_rows(model, genomes, records, offsets, length)
                virus = genomes.virus[records]
                measured.append((np.diff(logits.astype(np.float64))[:, 0], virus))
                area = auroc(virus, measured[-1][0])
                amounts = {"chunks": len(virus), "virus": int(virus.sum())}
                areas[part][str(length)] = {**amounts, "auroc": area and round(area, 4)}
        if part == "validation" and measured:
            temperature = fit_temperature(*map(np.concatenate, zip(*measured, strict=True)))
            contigs = _contig_models(model, genomes, lengths, temperature)
        progress.advance(1)
    digest = hashed(encoder).sha256
    report = {"schema": SCHEMAS["lite training"], **origin, **identity, "temperature": temperature}
    report |= {"chunk_auroc": areas, "encoder": digest}
    disk.save(report_file, (json.dumps(report, indent=1, sort_keys=True) + "\n").encode())
    content = classifier_to_bytes(
        {k: v for k, v in model.state_dict().items() if not k.startswith("encoder.")},
        encoders=(LITE.name,),
        chunk_lengths=lengths,
        extra={**origin, "encoder_sha256": digest},
        temperature=temperature,
        contigs=contigs,
    )
    disk.save(classifier, content)
    return report


def _with_linear_head(
    encoder: LiteNetwork, settings: LiteTrainingSettings, genomes: GenomeSet, lengths: Sequence[int]
) -> LiteModel:
    """Return the encoder with a linear classifier in the form of the others: two opposite units.

    On viruses and hosts of other kinds it is better than the one that was trained with the encoder,
    on mutated windows that count by their GC, and mostly of the groups that are told apart worse.
    """
    from sklearn.linear_model import LogisticRegression

    rows, labels, random = [], [], np.random.default_rng(settings.seed)
    for length in lengths:
        sampler = WindowSampler(genomes, length)
        sampler.reweigh(np.where(np.isin(genomes.group_names, settings.more_of), OFTENER, 1.0))
        count = min(HEAD_WINDOWS, max(2, len(genomes.bases) // length // 2 * 2))
        records, offsets = sampler.draw(count, length, random)
        rows.append(window_rows(encoder, genomes, records, offsets, length))
        labels.append(genomes.virus[records])
    embeddings = np.concatenate(rows).astype(np.float64)
    mean, spread = embeddings.mean(axis=0), embeddings.std(axis=0) + 1e-6
    regression = LogisticRegression(C=1 / (PENALTY * len(embeddings)), max_iter=1000)
    regression.fit((embeddings - mean) / spread, np.concatenate(labels))
    weights = torch.from_numpy(regression.coef_ / spread)  # [1, D]
    bias = torch.from_numpy(regression.intercept_ - regression.coef_ @ (mean / spread))
    model = LiteModel(replace(settings, hidden=2))
    model.encoder = encoder
    model.hidden_layer.weight.data = torch.cat([weights, -weights]).float()
    model.hidden_layer.bias.data = torch.cat([bias, -bias]).float()
    model.output_layer.weight.data = torch.tensor([[-0.5, 0.5], [0.5, -0.5]])
    model.output_layer.bias.data = torch.zeros(2)
    return model.eval()


def _contig_models(
    model: LiteModel, genomes: GenomeSet, lengths: Sequence[int], temperature: float
) -> dict[int, ContigModel]:
    """Return how chunks make a contig, by their length; none where no record is long enough."""
    models = {}
    for length in lengths:
        terms: list[Floats] = []
        labels: list[bool] = []
        groups: list[int] = []
        for count, contigs in CONTIGS.items():
            records, starts = measured_windows(genomes, count * length, contigs, 1)
            if not len(records):
                continue
            offsets = (starts[:, None] + np.arange(count) * length).ravel()
            logits = window_rows(model, genomes, np.repeat(records, count), offsets, length)
            log_odds = np.diff(logits.astype(np.float64)).ravel() / temperature
            first, counts = np.arange(len(records)) * count, np.full(len(records), float(count))
            terms.append(contig_terms(log_odds, first, counts))
            labels += genomes.virus[records].tolist()
            groups += genomes.groups[records].tolist()
        if terms:
            known, virus = np.concatenate(terms), np.array(labels)
            fitted = fit_contig_model(known, virus)
            models[length] = with_distributions(fitted, known, virus, np.array(groups))
    return models
