"""What a precision changes: embeddings beside fp32, and the calls that are made from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from virnucpro.benchmark.models import Model, open_model
from virnucpro.benchmark.workload import Workload
from virnucpro.classifier import check_fit, inspect, load
from virnucpro.contracts import Json
from virnucpro.errors import ModelError, UsageError
from virnucpro.layout import MOLECULES
from virnucpro.models.store import find

Say = Callable[[str], None]

ENOUGH = 0.999  # of the labels must be those of fp32
CHUNKS = 1000  # fewer cannot show one label in a thousand
EVERY = 10.0  # seconds between two reports
VIRUS = 1  # column of the scores


def classifier_for(
    models: Sequence[Model], given: Path | None, chunk_length: int, say: Say
) -> Path | None:
    """The classifier to judge by: ``given``, or the released one for the chunk length.

    None where weights are random, a molecule is missing, or there is no released one that fits.

    Raises:
        UsageError: one was given, but the models are not a real pair.
        ModelError: the given one does not fit them.
    """
    pair = {model.molecule: model.source for model in models}
    nucleotide, protein = (pair.get(molecule) for molecule in MOLECULES)
    if nucleotide is None or protein is None or len(models) > len(MOLECULES):
        if given is not None:
            raise UsageError(
                "--classifier judges one ESM-2 and one DNABERT-S of real weights: name both, with "
                "--weights real"
            )
        return None
    try:
        path = given or find(f"{chunk_length}_model.pth")
        fit = partial(check_fit, inspect(path), nucleotide=nucleotide, protein=protein)
        for warning in fit(chunk_length=chunk_length):
            say(f"warning: {warning}")
    except ModelError:
        if given is not None:
            raise
        return None
    return path


def judge(
    models: Sequence[Model],
    work: Workload,
    precisions: Sequence[str],
    classifier: Path | None,
    device: str,
    budget: int | None,
    say: Say,
) -> dict[str, Json]:
    """Every precision beside fp32 on the same frames.

    Raises:
        ModelError: weights are not here.
    """
    exact = _embedded(models, work, "fp32", device, budget, say)
    scores = _scores(classifier, models, exact)
    found: list[dict[str, Json]] = []
    for precision in (p for p in precisions if p != "fp32"):
        rows = _embedded(models, work, precision, device, budget, say)
        one: dict[str, Json] = {"precision": precision}
        one["embeddings"] = {name: _distance(rows[name], exact[name]) for name in exact}
        other = _scores(classifier, models, rows)
        labels = None
        if scores is not None and other is not None:
            labels = labels_agree(other, scores, work.chunks)
        one["labels"] = labels
        one["recommended"] = recommended(labels)
        found.append(one)
    return {
        "input": work.name,
        "chunk_length": work.chunk_length,
        "frames": len(work.chunks),
        "chunks": len(set(work.chunks)),
        "classifier": None if classifier is None else classifier.name,
        "precisions": found,
    }


def _embedded(
    models: Sequence[Model],
    work: Workload,
    precision: str,
    device: str,
    budget: int | None,
    say: Say,
) -> dict[str, torch.Tensor]:
    """Rows by model, one model on the device at a time."""
    rows: dict[str, torch.Tensor] = {}
    for model in models:
        say(f"{model.name}: embedding {len(work.chunks):,} frames in {precision}")
        encoder = open_model(model, device, precision, budget)
        encoder.optimise()
        watch = Watch(f"{model.name} {precision}", len(work.chunks), say)
        rows[model.family] = encoder.encode(work.of(model.molecule), watch)
    return rows


class Watch:
    """Says now and then how far an encoder is. A :data:`virnucpro.contracts.ReportProgress`."""

    def __init__(self, name: str, expected: int, say: Say) -> None:
        self._name, self._expected, self._say = name, expected, say
        self._done = 0
        self._started = self._said = time.monotonic()

    def __call__(self, sequences: int, tokens: int) -> None:
        """``sequences`` more are done."""
        self._done += sequences
        now = time.monotonic()
        if now - self._said >= EVERY:
            self._said = now
            left = (now - self._started) / self._done * (self._expected - self._done)
            self._say(f"{self._name}: {self._done:,} of {self._expected:,}, {left:.0f} s left")


def _distance(rows: torch.Tensor, exact: torch.Tensor) -> dict[str, float]:
    cosine = F.cosine_similarity(rows.double(), exact.double())
    return {
        "least_cosine": float(cosine.min()),
        "mean_cosine": float(cosine.mean()),
        "largest_difference": float((rows - exact).abs().max()),
    }


def _scores(
    classifier: Path | None, models: Sequence[Model], rows: Mapping[str, torch.Tensor]
) -> torch.Tensor | None:
    """float32 ``[frames, 2]``; None without a classifier."""
    if classifier is None:
        return None
    families = {model.molecule: model.family for model in models}
    merged = torch.cat([rows[families[molecule]] for molecule in MOLECULES], dim=1)
    return load(classifier).scores(merged)


def labels_agree(
    scores: torch.Tensor, exact: torch.Tensor, chunks: Sequence[int]
) -> dict[str, Json]:
    """Share of the frames, and of the chunks, that are called as by ``exact``.

    Scores are float32 ``[frames, 2]``, others and virus; ``chunks`` the chunk of each frame. A
    frame and a chunk are called as predict does: a chunk by its highest scores of each class.
    """
    frames = (scores[:, VIRUS] > scores[:, 0]) == (exact[:, VIRUS] > exact[:, 0])
    one, other = _chunk_calls(scores, chunks), _chunk_calls(exact, chunks)
    return {
        "frames": float(frames.double().mean()),
        "chunks": float((one == other).double().mean()),
        "frames_compared": len(frames),
        "chunks_compared": len(one),
    }


def _chunk_calls(scores: torch.Tensor, chunks: Sequence[int]) -> torch.Tensor:
    numbers, first = np.unique(np.asarray(chunks), return_index=True)
    highest = np.maximum.reduceat(scores.numpy(), first)  # the frames of a chunk stand together
    assert len(highest) == len(numbers)
    return torch.from_numpy(highest[:, VIRUS] >= highest[:, 0])


def recommended(labels: Mapping[str, Json] | None) -> bool | None:
    """Whether the labels are those of fp32; None where they were not, or too few were, compared."""
    if labels is None or labels["chunks_compared"] < CHUNKS:
        return None
    return bool(min(labels["frames"], labels["chunks"]) >= ENOUGH)
