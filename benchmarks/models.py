"""Encoders with random weights, in memory and in the released file formats, and input for them."""

from __future__ import annotations

import argparse
import json
import math
import random
import re
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn

from virnucpro.classifier.files import classifier_to_bytes
from virnucpro.compute.layers import Fp8Linear, prepare_blocks, torch_dtype
from virnucpro.contracts import Molecule
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.dnabert_s import DNABERT_NAMES, Dnabert, DnabertEncoder, DnabertSizes
from virnucpro.encoders.esm2 import (
    FAIR_NAMES,
    Esm2,
    Esm2Encoder,
    Esm2Sizes,
    rotary_frequencies,
    rotary_tables,
)
from virnucpro.encoders.family import BASES
from virnucpro.encoders.registry import family_named
from virnucpro.encoders.weights import stored_names
from virnucpro.io.frames import GENETIC_CODE, chunk_spans

TRUNCATION = 1024  # residues of a protein, as predict has it
SPREAD = 0.02  # of random weights, as ESM-2 and DNABERT-S were initialised
VOCABULARY = 4096  # tokens of DNABERT-S
# Lengths of the words that become one, one after the other.
MERGES = ((1, 1), (2, 2), (2, 1), (4, 1), (3, 2))
SENSE = [codon for codon, letter in GENETIC_CODE.items() if letter != "*"]
CHUNK = 500  # bases
LONGEST = 5000  # bases of a contig that chunks are cut from
HIDDEN = 512  # units of the released classifiers
PREFIX = "encoder.sentence_encoder."  # of the names in fair-esm's checkpoints
LAST_LAYER_SCALE = 4.0  # spreads the scores of the classifier, without making all of them 0 or 1


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
    family: str, size: str, device: str, precision: str, *, budget: int | None = None
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
    rotary = rotary_tables(rotary_frequencies(width // heads // 2), TRUNCATION + 2, target)
    return Esm2Encoder(model, rotary, target, budget)


def fill_randomly(model: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Move ``model`` from the meta device, with small random numbers; norms scale by nearly one."""
    model.to(dtype).to_empty(device=device).requires_grad_(False).eval()
    draw = torch.Generator(device).manual_seed(0)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            drawn = torch.randn(parameter.shape, generator=draw, device=device) * SPREAD
            is_scale = isinstance(module, nn.LayerNorm) and name == "weight"
            parameter.copy_((drawn + is_scale).half())


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


def frame_lengths(molecule: Molecule, count: int) -> list[int]:
    """Return the letters of ``count`` frames, of chunks as the chunking stage cuts them."""
    lengths = record_lengths(random.Random(count), LONGEST)
    spans = (span for length in lengths for span in chunk_spans(length, CHUNK))
    bases = [stop - start - n % 3 for n, (start, stop) in enumerate(islice(spans, count))]
    return bases if molecule == "nucleotide" else [length // 3 for length in bases]


def record_lengths(draw: random.Random, longest: int) -> Iterator[int]:
    """Yield the lengths of records without end, of a chunk or more, spread evenly in log."""
    while True:
        yield round(math.exp(draw.uniform(math.log(CHUNK), math.log(longest))))


# --- on the disk ------------------------------------------------------------------------------


def write_pair(
    folder: Path, esm: str, dnabert: str, device: str, sequences_per_file: int = 10_000
) -> list[str]:
    """Write random models of these sizes (a released name, or LAYERSxWIDTHxHEADS).

    The numbers are drawn on ``device``. Returns the options of ``predict`` that name the models.
    """
    folder.mkdir(parents=True)
    protein, nucleotide = folder / "esm2.pt", folder / "dnabert"
    width = write_esm2(protein, esm, device) + write_dnabert(nucleotide, dnabert, device)
    if device == "cuda":
        torch.cuda.empty_cache()  # this process may go on beside a worker
    last, config = folder / "mlp.safetensors", folder / "models.yaml"
    last.write_bytes(classifier(width))
    config.write_text(
        f"prediction:\n  sequences_per_file: {sequences_per_file}\n"
        f"features:\n  dnabert:\n    model_name: {nucleotide}\n"
        f"  esm:\n    model_name: {protein}\n"
    )
    return ["-c", str(config), "-m", "custom", "-p", str(last), "-e", str(CHUNK)]


def write_esm2(path: Path, size: str, device: str) -> int:
    """Write a ``.pt`` as fair-esm stores it, in float16, and return the width of the model.

    Rotary frequencies are left out, which the program then computes.
    """
    encoder = random_encoder("esm2", size, device, "fp16", budget=1)
    network: Any = encoder.network
    own = network.state_dict()
    state: dict[str, torch.Tensor] = {}
    names = stored_names(network, FAIR_NAMES)
    for name, value in own.items():
        parts = value.cpu().chunk(len(names[name]))
        state |= {PREFIX + key: part.clone() for key, part in zip(names[name], parts, strict=True)}
    about = argparse.Namespace(
        encoder_layers=len(network.blocks),
        encoder_embed_dim=encoder.dim,
        encoder_attention_heads=network.heads,
        token_dropout=True,
    )
    torch.save({"cfg": {"model": about}, "model": state}, path)
    return encoder.dim


def write_dnabert(folder: Path, size: str, device: str) -> int:
    """Write a folder with config, tokenizer and weights, and return the width of the model."""
    folder.mkdir()
    encoder = random_encoder("dnabert-s", size, device, "fp16", budget=1)
    network: Any = encoder.network
    own = network.state_dict()
    names = stored_names(network, DNABERT_NAMES)
    torch.save({names[key][0]: own[key].cpu() for key in own}, folder / "pytorch_model.bin")
    config = {
        "alibi_starting_size": 512,
        "num_hidden_layers": len(network.blocks),
        "hidden_size": encoder.dim,
        "num_attention_heads": network.blocks[0].heads,
        "intermediate_size": network.blocks[0].wo.in_features,
        "layer_norm_eps": network.norm.eps,
        "vocab_size": network.embed.num_embeddings,
        "type_vocab_size": network.token_type.num_embeddings,
        "pad_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer: Any = encoder
    tokenizer._tokenizer.save(str(folder / "tokenizer.json"))
    return encoder.dim


def classifier(width: int) -> bytes:
    """Return the content of a ``.safetensors`` file with random weights."""
    torch.manual_seed(4)
    output = nn.Linear(HIDDEN, 2)
    output.weight.data *= LAST_LAYER_SCALE
    hidden, norm = nn.Linear(width, HIDDEN), nn.BatchNorm1d(HIDDEN)
    layers = {"hidden_layer": hidden, "bn1": norm, "output_layer": output}
    state = nn.ModuleDict(layers).state_dict()
    del state["bn1.num_batches_tracked"]
    return classifier_to_bytes(state, encoders=(), chunk_lengths=(CHUNK,), extra={})


def write_contigs(path: Path, chunks: int, longest: int = LONGEST) -> Path:
    """Write contigs of random codons without a stop that give at least ``chunks`` chunks.

    Of random bases, one chunk of 500 in twenty would have an open frame. Here every chunk has one.
    """
    draw = random.Random(chunks)
    lengths = record_lengths(draw, longest)
    lines: list[str] = []
    while chunks > 0:
        bases = "".join(draw.choices(SENSE, k=next(lengths) // 3))
        lines.append(f">contig{len(lines) + 1}\n{bases}\n")
        chunks -= len(chunk_spans(len(bases), CHUNK))
    path.write_text("".join(lines))
    return path
