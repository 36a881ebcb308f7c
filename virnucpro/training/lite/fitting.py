"""From a data set to a pair of lite encoders with their classifier and a report."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from virnucpro import __version__
from virnucpro.classifier.files import classifier_to_bytes
from virnucpro.encoders.lite import lite_to_bytes, read_lite
from virnucpro.encoders.lite_features import WordPattern
from virnucpro.errors import InputError, UsageError
from virnucpro.executors.signals import Interruption
from virnucpro.metrics.classification import auroc
from virnucpro.metrics.temperature import fit_temperature
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.guard import admit_work
from virnucpro.store.lock import locked
from virnucpro.store.migrations import current_schema
from virnucpro.training.data.dataset import Dataset, Part
from virnucpro.training.lite.admission import (
    ENCODERS,
    LiteFiles,
    check_encoders,
    existing_training,
    work_identity,
)
from virnucpro.training.lite.frames import FrameSet, cluster_genomes, load_frames
from virnucpro.training.lite.trainer import (
    LitePair,
    LiteTrainer,
    LiteTrainingSettings,
    chunk_scores,
    frame_margins,
)
from virnucpro.training.lite.word_counts import PATTERNS, FoldedWordCounts, count_words
from virnucpro.training.progress import StepProgress

SAVE_SECONDS = 60.0
MEASURED_PARTS: tuple[Part, ...] = ("validation", "test")


def fit_lite(
    dataset: Dataset,
    root: Path,
    settings: LiteTrainingSettings,
    progress: StepProgress,
    *,
    interruption: Interruption,
    force: bool = False,
    patterns: Sequence[WordPattern] = PATTERNS,
    disk: Disk | None = None,
) -> Mapping[str, Any] | None:
    """Train the pair, or continue an interrupted training with the same settings and data.

    ``force`` moves earlier files to :attr:`LiteFiles.previous` and starts over. ``patterns`` are
    those of the words that the protein encoder looks up.

    Returns:
        The content of ``lite.json``; None if the same training was finished before.

    Raises:
        VirNucProError: see ``virnucpro.errors``. The same command continues an interrupted
            training.
    """
    disk, files = disk or Disk(), LiteFiles(root.absolute())
    identity: dict[str, Any] = {
        "settings": asdict(settings),
        "data_set": sha256_of(dataset.description_file) if dataset.description else "",
        "word_patterns": [asdict(pattern) for pattern in patterns],
        "threads": torch.get_num_threads(),
    }
    disk.make_folder(files.root)
    with locked(files.lock, "these encoders", state=[files.savepoint, files.previous]):
        disk.sweep(files.root)
        existing, state = existing_training(files, identity["threads"], force=force)
        admission = admit_work(work_identity(files, identity), existing, disk, force=force)
        if admission.decision == "finished":
            check_encoders(files)
            return None
        sets, clusters, counts = _read_training_data(dataset, patterns, progress)
        trainer = LiteTrainer(settings, sets, clusters, counts)
        if state is not None and admission.decision == "continue":
            trainer.load_state(state)
        progress.begin("training", settings.steps - trainer.step)
        with interruption.held():  # leaving it raises Interrupted, after the state is saved
            saved = time.monotonic()
            while trainer.step < settings.steps and interruption.number is None:
                trainer.advance()
                progress.advance(1)
                if time.monotonic() - saved > SAVE_SECONDS:
                    _save_state(files, identity, trainer, disk)
                    saved = time.monotonic()
            _save_state(files, identity, trainer, disk)
        report = _write_results(files, trainer.finish(), counts, dataset, identity, disk, progress)
        disk.remove(files.savepoint)
    return report


def _read_training_data(
    dataset: Dataset, patterns: Sequence[WordPattern], progress: StepProgress
) -> tuple[list[FrameSet], npt.NDArray[np.int32], list[FoldedWordCounts]]:
    """Return the frames of train, the clusters of its genomes, and the counts of its words."""
    progress.begin("reading frames, finding relatives, counting words", 2 + len(patterns))
    sets, genomes = load_frames(dataset, "train")
    if not sets:
        raise InputError(f"{dataset.root} has no frames to train on: prepare more genomes")
    progress.advance(1)
    clusters = cluster_genomes(sets, len(genomes))
    progress.advance(1)
    counts = []
    for pattern in patterns:
        counts.append(count_words(pattern, sets, clusters))
        progress.advance(1)
    return sets, clusters, counts


def _save_state(
    files: LiteFiles, identity: Mapping[str, Any], trainer: LiteTrainer, disk: Disk
) -> None:
    buffer = io.BytesIO()
    torch.save({"identity": json.dumps(identity, sort_keys=True), **trainer.state()}, buffer)
    disk.save(files.savepoint, buffer.getvalue())


def _write_results(
    files: LiteFiles,
    pair: LitePair,
    counts: Sequence[FoldedWordCounts],
    dataset: Dataset,
    identity: Mapping[str, Any],
    disk: Disk,
    progress: StepProgress,
) -> Mapping[str, Any]:
    """Write the encoders, calibrate and measure on their rounded weights, and write the rest."""
    settings = identity["settings"]
    origin = {
        # Without paths, so that the same training gives the same files.
        "command": f"virnucpro train lite DATASET --output-dir DIR --steps {settings['steps']} "
        f"--seed {settings['seed']}",
        "version": __version__,
        "data_set": identity["data_set"],
    }
    word_counts = [count.of_all_genomes for count in counts]
    disk.save(files.nucleotide, lite_to_bytes("nucleotide", pair.nucleotide, (), origin))
    disk.save(files.protein, lite_to_bytes("protein", pair.protein, word_counts, origin))
    pair.nucleotide, pair.protein = read_lite(files.nucleotide)[1], read_lite(files.protein)[1]
    progress.begin("measuring", len(MEASURED_PARTS))
    chunk_auroc: dict[str, Any] = {}
    temperature = None
    for part in MEASURED_PARTS:
        sets = load_frames(dataset, part)[0] if dataset.shards(part) else []
        margins = [frame_margins(pair, frames, word_counts) for frames in sets]
        if part == "validation" and sets:
            temperature = _calibrate(sets, margins)
        chunk_auroc[part] = {
            str(frames.length): _chunk_metrics(frames, set_margins, temperature or 1.0)
            for frames, set_margins in zip(sets, margins, strict=True)
        }
        progress.advance(1)
    digests = {
        name: sha256_of(path)
        for name, path in zip(ENCODERS, (files.nucleotide, files.protein), strict=True)
    }
    report = {
        "schema": current_schema("lite training"),
        **origin,
        **identity,
        "temperature": temperature,
        "chunk_auroc": chunk_auroc,
        "encoders": digests,
    }
    disk.save(files.report, (json.dumps(report, indent=1, sort_keys=True) + "\n").encode())
    content = classifier_to_bytes(
        pair.classifier_state(),
        encoders=ENCODERS,
        chunk_lengths=dataset.lengths(),
        extra={**origin, "encoder_sha256": " ".join(digests.values())},
        temperature=temperature,
    )
    disk.save(files.classifier, content)
    return report


def _calibrate(
    sets: Sequence[FrameSet], margins: Sequence[npt.NDArray[np.float32]]
) -> float | None:
    """Return the temperature for the same number of frames of either label, of all lengths.

    It is None if a label has no frames.
    """
    all_margins = np.concatenate(margins).astype(np.float64)
    virus = np.concatenate([frames.virus for frames in sets])
    random = np.random.default_rng(0)
    rows = [np.flatnonzero(virus == label) for label in (False, True)]
    size = min(map(len, rows))
    if not size:
        return None
    chosen = np.concatenate([random.permutation(label_rows)[:size] for label_rows in rows])
    return fit_temperature(all_margins[chosen], virus[chosen].astype(np.int64))


def _chunk_metrics(
    frames: FrameSet, margins: npt.NDArray[np.float32], temperature: float
) -> dict[str, Any]:
    """Return how many chunks there are, and their AUROC: None if a label has no chunks."""
    scores, virus = chunk_scores(margins / temperature, frames)
    area = auroc(virus, scores)
    return {
        "chunks": len(scores),
        "virus": int(virus.sum()),
        "auroc": None if area is None else round(area, 4),
    }


def check_packages() -> None:
    """Check that the packages which only training needs are installed.

    Raises:
        UsageError: a package is missing.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise UsageError("train lite needs scikit-learn: pip install 'virnucpro[train]'") from error
