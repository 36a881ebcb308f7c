"""Encoders with random weights: as fast as the released ones, for measuring without them."""

from __future__ import annotations

import re
from itertools import product

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn

from virnucpro.compute.arithmetic import prepare_blocks, torch_dtype
from virnucpro.encoders import dnabert_files, dnabert_s, esm2, esm2_files, esm2_network
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.errors import UsageError

# Layers, width, heads: README of https://github.com/facebookresearch/esm, "Available models", and
# config.json of https://huggingface.co/zhihan1996/DNABERT-S.
RELEASED = {
    "esm2_t6_8M_UR50D": (6, 320, 20),
    "esm2_t12_35M_UR50D": (12, 480, 20),
    "esm2_t30_150M_UR50D": (30, 640, 20),
    "esm2_t33_650M_UR50D": (33, 1280, 20),
    "esm2_t36_3B_UR50D": (36, 2560, 40),
    "esm2_t48_15B_UR50D": (48, 5120, 40),
    "DNABERT-S": (12, 768, 12),
}
DNABERT_VOCABULARY = 4096
MERGES = ((1, 1), (2, 2), (2, 1), (4, 1), (3, 2))  # lengths of the words that become one, in turn
SPREAD = 0.02  # of the weights, as both were initialised


def random_encoder(
    family: str,
    architecture: str,
    device: str,
    precision: str,
    *,
    budget: int | None,
    truncation: int,
) -> BatchedEncoder:
    """An ``esm2`` or ``dnabert-s`` on ``device``: a released name, or ``LAYERSxWIDTHxHEADS``.

    ``budget`` is tokens or sequences a batch; None finds it. Weights are the same numbers in every
    precision on one kind of device, and as float16 stores them, like those released.

    Raises:
        UsageError: an architecture that is not known, or that cannot be built.
    """
    layers, width, heads = _architecture(architecture)
    where, dtype = torch.device(device), torch_dtype(precision)
    if family == "esm2":
        size = esm2_files.Sizes(layers, width, heads, 4 * width, 1e-5, True)
        with torch.device("meta"):
            protein = esm2_network.Esm2(size)
        _fill(protein, where, dtype)
        prepare_blocks(protein.blocks, precision)
        pairs = width // heads // 2
        frequencies = esm2_files.rotary_frequencies(pairs)
        rotary = esm2_network.rotary_tables(frequencies, truncation + 2, where)
        return esm2.Esm2Encoder(protein, rotary, where, budget, truncation)
    sizes = dnabert_files.Sizes(layers, width, heads, 4 * width, 1e-12, DNABERT_VOCABULARY, 2)
    with torch.device("meta"):
        nucleotide = dnabert_s.Dnabert(sizes)
    _fill(nucleotide, where, dtype)
    prepare_blocks(nucleotide.blocks, precision)
    return dnabert_s.DnabertEncoder(nucleotide, _tokenizer(), heads, where, budget)


def _architecture(name: str) -> tuple[int, int, int]:
    if name in RELEASED:
        return RELEASED[name]
    match = re.fullmatch(r"(\d+)x(\d+)x(\d+)", name)
    if match is None:
        raise UsageError(f"{name}: expected LAYERSxWIDTHxHEADS, or one of {', '.join(RELEASED)}")
    layers, width, heads = map(int, match.groups())
    if not (layers and heads) or width % (2 * heads) or not width:
        raise UsageError(f"{name}: the width must divide by twice the heads")
    return layers, width, heads


def _fill(model: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Move ``model`` from the meta device, with small random numbers and plain layer norms."""
    model.to(dtype).to_empty(device=device).requires_grad_(False).eval()
    random = torch.Generator(device).manual_seed(0)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if isinstance(module, nn.LayerNorm):
                parameter.fill_(float(name == "weight"))
            else:
                drawn = torch.randn(parameter.shape, generator=random, device=device)
                parameter.copy_((drawn * SPREAD).half())


def _tokenizer() -> Tokenizer:
    """Byte pairs of up to five bases: some 130 tokens for 499 bases, where the real one has 100."""
    words = dict.fromkeys(["[UNK]", "[CLS]", "[SEP]", *"ACGT"])
    merges = [(first, second) for a, b in MERGES for first in _all(a) for second in _all(b)]
    words |= dict.fromkeys(first + second for first, second in merges)
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def _all(length: int) -> list[str]:
    return ["".join(letters) for letters in product("ACGT", repeat=length)]
