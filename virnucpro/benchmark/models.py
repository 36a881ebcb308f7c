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
from virnucpro.encoders.esm2 import read_esm2, rotary_frequencies
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import (
    family_named,
    locate,
    open_encoder,
    random_encoder,
    released_families,
)
from virnucpro.errors import UsageError
from virnucpro.layout import Molecule

WeightsFrom = Literal["random", "real"]
TRUNCATION = 1024  # residues of a protein, as predict has it


@dataclass(frozen=True)
class Model:
    """One architecture.

    Attributes:
        what: a released name or, of random weights, LAYERSxWIDTHxHEADS.
        source: the real weights on this machine; None makes random ones.
    """

    family: str
    what: str
    source: EncoderSource | None = None

    @property
    def name(self) -> str:
        """``esm2_t6_8M_UR50D``, ``dnabert-s``, or ``esm2:`` and a size or the name of a file."""
        if self.what == self.family or self.what.startswith(f"{self.family}_"):
            return self.what
        return f"{self.family}:{Path(self.what).name}"

    @property
    def molecule(self) -> Molecule:
        """What it reads."""
        return family_named(self.family).molecule


def model_of(text: str, weights: WeightsFrom) -> Model:
    """``esm2_t36_3B_UR50D``, ``dnabert-s`` or ``FAMILY:WHAT``; real weights are looked up.

    Raises:
        UsageError: none of these.
        ModelError: the weights are not on this machine, or of another kind.
    """
    family, what = _parsed(text)
    if weights == "random":
        return Model(family, what)
    described = family_named(family)
    name = described.default_model if what == family else what
    source = locate(name, described.molecule)
    if source.family != family:
        raise UsageError(f"{source.name} is of family {source.family}, not {family}")
    return Model(family, what, source)


def _parsed(text: str) -> tuple[str, str]:
    """Return the family and a released name, a size or a place."""
    name, colon, what = text.partition(":")
    for family in released_families():
        if colon and what and name == family.name:
            return name, what
        if not colon and text.startswith(f"{family.name}_"):
            return family.name, text
        if text.lower() in (family.default_model.lower(), family.name) and family.default_model:
            return family.name, family.name
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
        released = family_named(model.family).released
        size = next(iter(released)) if model.what == model.family else model.what
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
        return read_esm2(model.source.path).inv_freq
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
