"""Encoders with random weights, as fast as the released ones, and sequences of realistic lengths."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from itertools import product

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn

from virnucpro.compute.arithmetic import Fp8Linear, prepare_blocks, torch_dtype
from virnucpro.compute.budget import random_sequences
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.dnabert_s import Dnabert, DnabertEncoder, DnabertSizes
from virnucpro.encoders.esm2 import Esm2, Esm2Encoder, Esm2Sizes, rotary_frequencies, rotary_tables
from virnucpro.encoders.family import BASES
from virnucpro.encoders.registry import family_named
from virnucpro.io.frames import GENETIC_CODE, chunk_spans
from virnucpro.layout import Molecule

TRUNCATION = 1024  # residues of a protein, as predict has it
SPREAD = 0.02  # of random weights, as ESM-2 and DNABERT-S were initialised
VOCABULARY = 4096  # tokens of DNABERT-S
# Lengths of the words that become one, one after the other.
MERGES = ((1, 1), (2, 2), (2, 1), (4, 1), (3, 2))
SENSE = {codon: letter for codon, letter in GENETIC_CODE.items() if letter != "*"}


# Bases of a chunk, by the name of a mix of lengths. Chunks are cut from contigs of up to 5,000 bases.
MIXES = {"500": 500, "300": 300}
LONGEST = 5000


def parse_model(text: str) -> tuple[str, str]:
    """Return the family and the size of ``esm2_t36_3B_UR50D`` or ``FAMILY:LAYERSxWIDTHxHEADS``."""
    family, _, size = text.rpartition(":")
    for name in ("esm2", "dnabert-s"):
        if family in ("", name) and size in family_named(name).released:
            return name, size
        if family == name and re.fullmatch(r"\d+x\d+x\d+", size):
            return name, size
    raise ValueError(f"{text!r} is neither a released model nor FAMILY:LAYERSxWIDTHxHEADS")


def random_encoder(
    family: str,
    size: str,
    device: str,
    precision: str,
    *,
    budget: int | None = None,
    truncation: int = TRUNCATION,
) -> BatchedEncoder:
    """Open an encoder whose weights are the same float16 numbers at every precision.

    ``size`` is the name of a released model or ``LAYERSxWIDTHxHEADS``.
    """
    released = family_named(family).released
    layers, width, heads = released[size] if size in released else map(int, size.split("x"))
    target = torch.device(device)
    model: Esm2 | Dnabert
    with torch.device("meta"):
        if family == "esm2":
            model = Esm2(Esm2Sizes(layers, width, heads, 4 * width, 1e-5, True))
        else:
            model = Dnabert(DnabertSizes(layers, width, heads, 4 * width, 1e-12, VOCABULARY, 2))
    fill_randomly(model, target, torch_dtype(precision))
    if isinstance(model, Dnabert):
        return DnabertEncoder(model, random_tokenizer(), target, budget)
    prepare_blocks(model.blocks, precision)
    rotary = rotary_tables(rotary_frequencies(width // heads // 2), truncation + 2, target)
    return Esm2Encoder(model, rotary, target, budget)


def fill_randomly(model: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Move ``model`` from the meta device, with small random numbers and plain layer norms."""
    model.to(dtype).to_empty(device=device).requires_grad_(False).eval()
    draw = torch.Generator(device).manual_seed(0)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if isinstance(module, nn.LayerNorm):
                parameter.fill_(float(name == "weight"))
            else:
                drawn = torch.randn(parameter.shape, generator=draw, device=device)
                parameter.copy_((drawn * SPREAD).half())


def random_tokenizer() -> Tokenizer:
    """Byte pairs of up to five bases: some 130 tokens for 499 bases, where the real one has 100."""

    def words(length: int) -> list[str]:
        return ["".join(letters) for letters in product(BASES, repeat=length)]

    merges = [pair for a, b in MERGES for pair in product(words(a), words(b))]
    tokens = dict.fromkeys(["[UNK]", "[CLS]", "[SEP]", *BASES, *map("".join, merges)])
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def count_work(encoder: BatchedEncoder, sequences: list[str]) -> tuple[int, int]:
    """Return the number of tokens without padding, and of their floating-point operations.

    These are the operations of the linear layers and of attention: 4 T^2 D per layer and sequence,
    where T is the mean length in a batch of similar lengths.
    """
    network = encoder.network
    layers = [m for m in network.modules() if isinstance(m, (nn.Linear, Fp8Linear))]
    weights = sum(p.numel() for layer in layers for p in layer.parameters() if p.dim() == 2)
    tokens, squares = 0, 0.0
    for batch in encoder.batches(sequences):
        tokens += batch.tokens
        squares += batch.tokens**2 / len(batch.indices)
    depth = len(network.blocks)
    return tokens, round(2 * weights * tokens + 4 * encoder.dim * depth * squares)


def sequences_for(family: str, lengths: list[int], count: int) -> list[str]:
    """Return random sequences that an encoder of ``family`` reads."""
    return random_sequences(family_named(family).alphabet, lengths, count)


def random_frames(mix: str, count: int) -> dict[Molecule, list[str]]:
    """Return ``count`` open frames of random codons, always the same ones.

    They are as long as the frames of chunks that the chunking stage cuts.
    """
    draw = random.Random(count)
    frames: dict[Molecule, list[str]] = {"nucleotide": [], "protein": []}
    lengths = (
        stop - start
        for length in record_lengths(MIXES[mix], draw)
        for start, stop in chunk_spans(length, MIXES[mix])
    )
    for number in range(count):
        bases = next(lengths) - number % 3  # frame 1, 2 or 3
        codons = draw.choices(list(SENSE), k=bases // 3)
        more = draw.choice("ACGT") if bases % 3 else ""
        frames["nucleotide"].append("".join(codons) + more)
        frames["protein"].append("".join(map(SENSE.__getitem__, codons)))
    return frames


def record_lengths(shortest: int, draw: random.Random) -> Iterator[int]:
    """Yield the lengths of records without end, spread evenly in log."""
    while True:
        yield round(math.exp(draw.uniform(math.log(shortest), math.log(LONGEST))))
