"""Write models with random weights in the released file formats, and input for them."""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.models import SENSE, random_encoder, record_lengths
from virnucpro.classifier.files import classifier_to_bytes
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.dnabert_s import DNABERT_NAMES
from virnucpro.encoders.esm2 import FAIR_NAMES, rotary_frequencies
from virnucpro.encoders.weights import stored_names
from virnucpro.io.frames import chunk_spans

CHUNK = 500  # bases
HIDDEN = 512  # units of the released classifiers
PREFIX = "encoder.sentence_encoder."  # of the names in fair-esm's checkpoints
LAST_LAYER_SCALE = 4.0  # spreads the scores of the classifier, without making all of them 0 or 1


@dataclass(frozen=True)
class Pair:
    """Two encoders and a classifier on the disk, and the configuration that names them."""

    esm: Path
    dnabert: Path
    classifier: Path
    config: Path

    @property
    def options(self) -> list[str]:
        """The options for ``virnucpro predict``."""
        custom = ["-m", "custom", "-p", str(self.classifier), "-e", str(CHUNK)]
        return ["-c", str(self.config), *custom]


def write_pair(
    folder: Path, esm: str, dnabert: str, device: str, sequences_per_file: int = 10_000
) -> Pair:
    """Write random models of these sizes (a released name, or LAYERSxWIDTHxHEADS).

    The numbers are drawn on ``device``. A complete ``folder`` is used as it is: the configuration,
    which is written last, shows that it is complete.
    """
    names = ("esm2.pt", "dnabert", "mlp.safetensors", "models.yaml")
    pair = Pair(*(folder / name for name in names))
    if pair.config.exists():
        return pair
    folder.mkdir(parents=True, exist_ok=True)
    width = write_esm2(pair.esm, esm, device) + write_dnabert(pair.dnabert, dnabert, device)
    if device == "cuda":
        torch.cuda.empty_cache()  # this process may go on beside a worker
    pair.classifier.write_bytes(classifier(width))
    pair.config.write_text(
        f"prediction:\n  sequences_per_file: {sequences_per_file}\n"
        f"features:\n  dnabert:\n    model_name: {pair.dnabert}\n"
        f"  esm:\n    model_name: {pair.esm}\n"
    )
    return pair


def write_esm2(path: Path, size: str, device: str) -> int:
    """Write a ``.pt`` as fair-esm stores it, in float16, and return the width of the model."""
    encoder = drawn("esm2", size, device)
    network: Any = encoder.network
    layers, own = len(network.blocks), network.state_dict()
    state: dict[str, torch.Tensor] = {}
    names = stored_names(network, FAIR_NAMES)
    for name, value in own.items():
        parts = value.cpu().chunk(len(names[name]))
        state |= {PREFIX + key: part.clone() for key, part in zip(names[name], parts, strict=True)}
    rotary = rotary_frequencies(encoder.dim // network.heads // 2).half()
    for i in range(layers):
        state[f"{PREFIX}layers.{i}.self_attn.rot_emb.inv_freq"] = rotary
    about = argparse.Namespace(
        encoder_layers=layers,
        encoder_embed_dim=encoder.dim,
        encoder_attention_heads=network.heads,
        token_dropout=True,
    )
    torch.save({"cfg": {"model": about}, "model": state}, path)
    return encoder.dim


def write_dnabert(folder: Path, size: str, device: str) -> int:
    """Write a folder with config, tokenizer and weights, and return the width of the model."""
    folder.mkdir()
    encoder = drawn("dnabert-s", size, device)
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


def drawn(family: str, size: str, device: str) -> BatchedEncoder:
    """Return random weights in float16. Those of layer norms are random too, so that tests see them."""
    encoder = random_encoder(family, size, device, "fp16", budget=1)
    generator = torch.Generator(device).manual_seed(1)
    for module in encoder.network.modules():
        if isinstance(module, nn.LayerNorm):
            for parameter in module.parameters():
                noise = torch.randn(parameter.shape, generator=generator, device=device)
                parameter.data += (0.1 * noise).to(parameter.dtype)
    return encoder


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


def write_contigs(path: Path, chunks: int) -> Path:
    """Write contigs of random codons without a stop that give at least ``chunks`` chunks.

    Of random bases, one chunk of 500 in twenty would have an open frame. Here every chunk has one.
    Lengths are those of ``--mix 500`` of ``benchmarks.encoders``.
    """
    draw = random.Random(chunks)
    lengths = record_lengths(CHUNK, draw)
    lines: list[str] = []
    while chunks > 0:
        bases = "".join(draw.choices(list(SENSE), k=next(lengths) // 3))
        lines.append(f">contig{len(lines) + 1}\n{bases}\n")
        chunks -= len(chunk_spans(len(bases), CHUNK))
    path.write_text("".join(lines))
    return path
