"""Measure what a precision changes: embeddings and calls, compared with those of fp32."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from virnucpro.benchmark.measuring import Notify
from virnucpro.benchmark.models import BenchmarkModel, open_model
from virnucpro.benchmark.workload import Workload
from virnucpro.classifier.files import inspect_classifier, load_classifier
from virnucpro.classifier.fit import check_fit
from virnucpro.contracts import Json
from virnucpro.errors import ModelError, UsageError
from virnucpro.layout import MOLECULES
from virnucpro.models.store import find_model

LEAST_AGREEMENT = 0.999  # of the calls must be those of fp32
FEWEST_CHUNKS = 1000  # fewer chunks cannot show one different call in a thousand
REPORT_SECONDS = 10.0  # seconds between two reports
VIRUS = 1  # column of the scores


def classifier_for(
    models: Sequence[BenchmarkModel], given: Path | None, chunk_length: int, notify: Notify
) -> Path | None:
    """Return the classifier to compare calls with: ``given``, or the released one.

    The result is None where weights are random, a molecule is missing, or no released classifier
    fits the chunk length.

    Raises:
        UsageError: a classifier was given, but the models are not a pair with real weights.
        ModelError: the given classifier does not fit the models.
    """
    pair = {model.molecule: model.source for model in models}
    nucleotide, protein = (pair.get(molecule) for molecule in MOLECULES)
    if nucleotide is None or protein is None or len(models) > len(MOLECULES):
        if given is not None:
            raise UsageError(
                "--classifier needs one ESM-2 and one DNABERT-S with real weights: name both, with "
                "--weights real"
            )
        return None
    try:
        path = given or find_model(f"{chunk_length}_model.pth")
        info = inspect_classifier(path)
        for warning in check_fit(info, (nucleotide, protein), chunk_length):
            notify(f"warning: {warning}")
    except ModelError:
        if given is not None:
            raise
        return None
    return path


def compare_precisions(
    models: Sequence[BenchmarkModel],
    work: Workload,
    precisions: Sequence[str],
    classifier: Path | None,
    device: str,
    budget: int | None,
    notify: Notify,
) -> dict[str, Json]:
    """Compare every precision with fp32 on the same frames.

    Raises:
        ModelError: weights are not on this machine.
    """
    exact = _embedded(models, work, "fp32", device, budget, notify)
    scores = _scores(classifier, models, exact)
    comparisons: list[dict[str, Json]] = []
    for precision in (p for p in precisions if p != "fp32"):
        rows = _embedded(models, work, precision, device, budget, notify)
        comparison: dict[str, Json] = {"precision": precision}
        comparison["embeddings"] = {name: _distance(rows[name], exact[name]) for name in exact}
        low_scores = _scores(classifier, models, rows)
        labels = None
        if scores is not None and low_scores is not None:
            labels = labels_agree(low_scores, scores, work.chunks)
        comparison["labels"] = labels
        comparison["recommended"] = agrees_with_fp32(labels)
        comparisons.append(comparison)
    return {
        "input": work.name,
        "chunk_length": work.chunk_length,
        "frames": len(work.chunks),
        "chunks": len(set(work.chunks)),
        "classifier": None if classifier is None else classifier.name,
        "precisions": comparisons,
    }


def _embedded(
    models: Sequence[BenchmarkModel],
    work: Workload,
    precision: str,
    device: str,
    budget: int | None,
    notify: Notify,
) -> dict[str, torch.Tensor]:
    """Return the embeddings by family. One model at a time is on the device."""
    rows: dict[str, torch.Tensor] = {}
    for model in models:
        notify(f"{model.name}: embedding {len(work.chunks):,} frames in {precision}")
        encoder = open_model(model, device, precision, budget)
        encoder.optimise()
        watch = EmbeddingProgress(f"{model.name} {precision}", len(work.chunks), notify)
        rows[model.family] = encoder.encode(work.of(model.molecule), watch)
    return rows


class EmbeddingProgress:
    """Report now and then how far an encoder is.

    It is a :data:`virnucpro.contracts.ReportProgress`.
    """

    def __init__(self, name: str, expected: int, notify: Notify) -> None:
        self._name, self._expected, self._say = name, expected, notify
        self._sequences = 0
        self._started = self._reported = time.monotonic()

    def __call__(self, sequences: int, tokens: int) -> None:
        """Count ``sequences`` more."""
        self._sequences += sequences
        now = time.monotonic()
        if now - self._reported >= REPORT_SECONDS:
            self._reported = now
            remaining = (now - self._started) / self._sequences * (self._expected - self._sequences)
            self._say(
                f"{self._name}: {self._sequences:,} of {self._expected:,}, {remaining:.0f} s left"
            )


def _distance(rows: torch.Tensor, exact: torch.Tensor) -> dict[str, float]:
    cosine = F.cosine_similarity(rows.double(), exact.double())
    return {
        "least_cosine": float(cosine.min()),
        "mean_cosine": float(cosine.mean()),
        "largest_difference": float((rows - exact).abs().max()),
    }


def _scores(
    classifier: Path | None, models: Sequence[BenchmarkModel], rows: Mapping[str, torch.Tensor]
) -> torch.Tensor | None:
    """Return float32 ``[frames, 2]``, or None without a classifier."""
    if classifier is None:
        return None
    families = {model.molecule: model.family for model in models}
    merged = torch.cat([rows[families[molecule]] for molecule in MOLECULES], dim=1)
    return load_classifier(classifier).scores(merged)


def labels_agree(
    scores: torch.Tensor, exact: torch.Tensor, chunks: Sequence[int]
) -> dict[str, Json]:
    """Return the share of the frames, and of the chunks, whose calls are those of ``exact``.

    Frames and chunks are called as predict does: a chunk by its highest score of each class.

    Args:
        scores, exact: float32 ``[frames, 2]``, others and virus.
        chunks: the number of the chunk of each frame; frames of a chunk are neighbours.
    """
    frames = (scores[:, VIRUS] > scores[:, 0]) == (exact[:, VIRUS] > exact[:, 0])
    calls, exact_calls = _chunk_calls(scores, chunks), _chunk_calls(exact, chunks)
    return {
        "frames": float(frames.double().mean()),
        "chunks": float((calls == exact_calls).double().mean()),
        "frames_compared": len(frames),
        "chunks_compared": len(calls),
    }


def _chunk_calls(scores: torch.Tensor, chunks: Sequence[int]) -> torch.Tensor:
    numbers, first = np.unique(np.asarray(chunks), return_index=True)
    highest = np.maximum.reduceat(scores.numpy(), first)  # the frames of a chunk are neighbours
    assert len(highest) == len(numbers)
    return torch.from_numpy(highest[:, VIRUS] >= highest[:, 0])


def agrees_with_fp32(labels: Mapping[str, Json] | None) -> bool | None:
    """Return whether the calls are those of fp32, or None where too few were compared."""
    if labels is None or labels["chunks_compared"] < FEWEST_CHUNKS:
        return None
    return bool(min(labels["frames"], labels["chunks"]) >= LEAST_AGREEMENT)
