"""Name the models that are measured, and open them with random or real weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from virnucpro.compute.arithmetic import LINEAR_LAYERS
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.esm2 import read_esm2
from virnucpro.encoders.esm2_network import rotary_frequencies
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
class BenchmarkModel:
    """A model to measure.

    Attributes:
        what: a released name, a path or, for random weights, LAYERSxWIDTHxHEADS.
        source: the real weights on this machine; None for random ones.
    """

    family: str
    what: str
    source: EncoderSource | None = None

    @property
    def name(self) -> str:
        """The released name, or the family with a size or the name of a file."""
        if self.what == self.family or self.what.startswith(f"{self.family}_"):
            return self.what
        return f"{self.family}:{Path(self.what).name}"

    @property
    def molecule(self) -> Molecule:
        """What it reads."""
        return family_named(self.family).molecule


def parse_model(text: str, weights: WeightsFrom) -> BenchmarkModel:
    """Read ``esm2_t36_3B_UR50D``, ``dnabert-s`` or ``FAMILY:WHAT``, and locate real weights.

    Raises:
        UsageError: the text is none of these.
        ModelError: the weights are not on this machine, or they are of another family.
    """
    family, what = _parsed(text)
    if weights == "random":
        return BenchmarkModel(family, what)
    described = family_named(family)
    name = described.default_model if what == family else what
    source = locate(name, described.molecule)
    if source.family != family:
        raise UsageError(f"{source.name} is of family {source.family}, not {family}")
    return BenchmarkModel(family, what, source)


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
        f"{text!r} is not a model that can be measured: name esm2_t36_3B_UR50D or a sister of it, "
        f"dnabert-s, or esm2:WHAT or dnabert-s:WHAT with a size (2x48x4) or, with --weights real, "
        f"a path"
    )


def open_model(
    model: BenchmarkModel, device: str, precision: str, budget: int | None
) -> BatchedEncoder:
    """Open the encoder on ``device``. ``budget`` is in tokens or sequences; None measures it.

    Raises:
        UsageError: the architecture is unknown.
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
    model: BenchmarkModel, device: str, precision: str, budget: int | None
) -> tuple[BatchedEncoder, float]:
    """Open the encoder, and return the seconds it took, with those of measuring the budget."""
    started = time.perf_counter()
    encoder = open_model(model, device, precision, budget)
    return encoder, time.perf_counter() - started


def rotary_frequencies_of(model: BenchmarkModel, encoder: BatchedEncoder) -> torch.Tensor:
    """Return the rotary frequencies of an ESM-2, float32, for another implementation."""
    if model.source is not None and model.source.path is not None:
        return read_esm2(model.source.path).inv_freq
    heads = int(encoder.network.heads)  # type: ignore[arg-type]
    return rotary_frequencies(encoder.dim // heads // 2)


def linear_flops(network: torch.nn.Module) -> int:
    """Return the floating-point operations per token in the linear layers."""
    layers = (m for m in network.modules() if isinstance(m, LINEAR_LAYERS))
    return sum(2 * p.numel() for layer in layers for p in layer.parameters() if p.dim() == 2)


def count_work(encoder: BatchedEncoder, sequences: Sequence[str]) -> tuple[int, int]:
    """Return the number of tokens without padding, and of their floating-point operations.

    These are the operations of the linear layers and of attention: 4 T^2 D per layer and sequence,
    where T is the mean length in a batch of similar lengths.
    """
    network = encoder.network
    layers = len(network.blocks)  # type: ignore[arg-type]
    tokens, squares = 0, 0.0
    for batch in encoder.batches(sequences):
        tokens += batch.tokens
        squares += batch.tokens**2 / len(batch.indices)
    return tokens, round(linear_flops(network) * tokens + 4 * encoder.dim * layers * squares)
