"""Which models are measured, and opening them with random or real weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from virnucpro.contracts import Precision
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.esm2_files import read_checkpoint, rotary_frequencies
from virnucpro.encoders.random_weights import random_encoder
from virnucpro.encoders.registry import EncoderSource, locate, open_encoder
from virnucpro.errors import UsageError

WeightsFrom = Literal["random", "real"]
DNABERT = "zhihan1996/DNABERT-S"
TRUNCATION = 1024  # residues of a protein, as predict has it


@dataclass(frozen=True)
class Model:
    """One architecture: ``what`` is a released name, for random weights also LAYERSxWIDTHxHEADS.

    For real weights it is whatever predict takes: a name, a folder or a file.
    """

    family: Literal["esm2", "dnabert-s"]
    what: str
    weights: WeightsFrom

    @property
    def name(self) -> str:
        """``esm2_t6_8M_UR50D``, ``dnabert-s``, or ``esm2:2x48x4``."""
        if self.what == self.family or self.what.startswith("esm2_"):
            return self.what
        return f"{self.family}:{self.what}"


def model_of(text: str, weights: WeightsFrom) -> Model:
    """``esm2_t36_3B_UR50D``, ``dnabert-s`` or ``FAMILY:WHAT``.

    Raises:
        UsageError: none of these.
    """
    family, colon, what = text.partition(":")
    if not colon and text.startswith("esm2_"):
        return Model("esm2", text, weights)
    if not colon and text.lower() in ("dnabert-s", DNABERT.lower()):
        return Model("dnabert-s", "dnabert-s", weights)
    if what and family == "esm2":
        return Model("esm2", what, weights)
    if what and family == "dnabert-s":
        return Model("dnabert-s", what, weights)
    raise UsageError(
        f"{text!r} is no model to measure: name esm2_t36_3B_UR50D or a sister of it, dnabert-s, "
        f"or esm2:WHAT and dnabert-s:WHAT for a size (2x48x4) or, with --weights real, a place"
    )


def source_of(model: Model) -> EncoderSource:
    """The real weights on this machine. Raises ModelError where they are not here."""
    name = DNABERT if model.what == "dnabert-s" else model.what
    return locate(name, "protein" if model.family == "esm2" else "nucleotide")


def open_model(
    model: Model, device: str, precision: Precision, budget: int | None
) -> BatchedEncoder:
    """The encoder on ``device``. ``budget`` is tokens or sequences a batch; None finds it.

    Raises:
        UsageError: an unknown architecture.
        ModelError: the weights are not here, or damaged.
    """
    if model.weights == "random":
        size = "DNABERT-S" if model.what == "dnabert-s" else model.what
        return random_encoder(
            model.family, size, device, precision, budget=budget, truncation=TRUNCATION
        )
    source = source_of(model)
    encoder = open_encoder(source, device, precision, budget=budget, truncation=TRUNCATION)
    if source.family != model.family or not isinstance(encoder, BatchedEncoder):
        raise UsageError(f"{source.name} is of family {source.family}, not {model.family}")
    return encoder


def timed_open(
    model: Model, device: str, precision: Precision, budget: int | None
) -> tuple[BatchedEncoder, float]:
    """The same, with the seconds it took; a budget that is measured is part of them."""
    started = time.perf_counter()
    encoder = open_model(model, device, precision, budget)
    return encoder, time.perf_counter() - started


def frequencies(model: Model, encoder: BatchedEncoder) -> torch.Tensor:
    """Rotary frequencies of an ESM-2, float32, to lend them to another implementation."""
    if model.weights == "real":
        path = source_of(model).path
        assert path is not None
        return read_checkpoint(path).inv_freq
    heads = int(encoder.network.heads)  # type: ignore[arg-type]
    return rotary_frequencies(encoder.dim // heads // 2)


def linear_flops(network: torch.nn.Module) -> int:
    """Floating-point operations of one token in the linear layers."""
    layers = (m for m in network.modules() if isinstance(m, torch.nn.Linear))
    return sum(2 * layer.weight.numel() for layer in layers)


def work_of(encoder: BatchedEncoder, sequences: Sequence[str]) -> tuple[int, int]:
    """Tokens without padding, and the floating-point operations that they need.

    Linear layers, and attention: 4 T^2 D a layer, T the mean of a batch of like lengths.
    """
    network = encoder.network
    layers = len(network.blocks)  # type: ignore[arg-type]
    tokens, squares = 0, 0.0
    for batch in encoder.batches(sequences):
        tokens += batch.tokens
        squares += batch.tokens**2 / len(batch.indices)
    return tokens, round(linear_flops(network) * tokens + 4 * encoder.dim * layers * squares)
