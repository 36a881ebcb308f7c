"""Which models are measured, and opening them with random or real weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from virnucpro.compute.fp8 import Fp8Linear
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.esm2_files import read_checkpoint, rotary_frequencies
from virnucpro.encoders.random_weights import random_encoder
from virnucpro.encoders.registry import EncoderSource, locate, open_encoder
from virnucpro.errors import UsageError

Family = Literal["esm2", "dnabert-s"]
WeightsFrom = Literal["random", "real"]
DNABERT = "zhihan1996/DNABERT-S"
TRUNCATION = 1024  # residues of a protein, as predict has it


@dataclass(frozen=True)
class Model:
    """One architecture.

    Attributes:
        what: a released name or, of random weights, LAYERSxWIDTHxHEADS.
        source: the real weights on this machine; None makes random ones.
    """

    family: Family
    what: str
    source: EncoderSource | None = None

    @property
    def name(self) -> str:
        """``esm2_t6_8M_UR50D``, ``dnabert-s``, or ``esm2:`` and a size or the name of a file."""
        if self.what == self.family or self.what.startswith("esm2_"):
            return self.what
        return f"{self.family}:{Path(self.what).name}"


def model_of(text: str, weights: WeightsFrom) -> Model:
    """``esm2_t36_3B_UR50D``, ``dnabert-s`` or ``FAMILY:WHAT``; real weights are looked up.

    Raises:
        UsageError: none of these.
        ModelError: the weights are not on this machine, or of another kind.
    """
    family, what = _parsed(text)
    if weights == "random":
        return Model(family, what)
    name = DNABERT if what == "dnabert-s" else what
    source = locate(name, "protein" if family == "esm2" else "nucleotide")
    if source.family != family:
        raise UsageError(f"{source.name} is of family {source.family}, not {family}")
    return Model(family, what, source)


def _parsed(text: str) -> tuple[Family, str]:
    family, colon, what = text.partition(":")
    if not colon and text.startswith("esm2_"):
        return "esm2", text
    if not colon and text.lower() in ("dnabert-s", DNABERT.lower()):
        return "dnabert-s", "dnabert-s"
    if what and family == "esm2":
        return "esm2", what
    if what and family == "dnabert-s":
        return "dnabert-s", what
    raise UsageError(
        f"{text!r} is no model to measure: name esm2_t36_3B_UR50D or a sister of it, dnabert-s, "
        f"or esm2:WHAT and dnabert-s:WHAT for a size (2x48x4) or, with --weights real, a place"
    )


def open_model(model: Model, device: str, precision: str, budget: int | None) -> BatchedEncoder:
    """The encoder on ``device``. ``budget`` is tokens or sequences a batch; None finds it.

    Raises:
        UsageError: an unknown architecture.
        ModelError: the weights are damaged.
    """
    if model.source is None:
        size = "DNABERT-S" if model.what == "dnabert-s" else model.what
        return random_encoder(
            model.family, size, device, precision, budget=budget, truncation=TRUNCATION
        )
    encoder = open_encoder(model.source, device, precision, budget=budget, truncation=TRUNCATION)
    assert isinstance(encoder, BatchedEncoder)  # as both families are
    return encoder


def timed_open(
    model: Model, device: str, precision: str, budget: int | None
) -> tuple[BatchedEncoder, float]:
    """The same, with the seconds it took; a budget that is measured is part of them."""
    started = time.perf_counter()
    encoder = open_model(model, device, precision, budget)
    return encoder, time.perf_counter() - started


def frequencies(model: Model, encoder: BatchedEncoder) -> torch.Tensor:
    """Rotary frequencies of an ESM-2, float32, to lend them to another implementation."""
    if model.source is not None and model.source.path is not None:
        return read_checkpoint(model.source.path).inv_freq
    heads = int(encoder.network.heads)  # type: ignore[arg-type]
    return rotary_frequencies(encoder.dim // heads // 2)


def linear_flops(network: torch.nn.Module) -> int:
    """Floating-point operations of one token in the linear layers."""
    layers = (m for m in network.modules() if isinstance(m, (torch.nn.Linear, Fp8Linear)))
    return sum(2 * p.numel() for layer in layers for p in layer.parameters() if p.dim() == 2)


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
