"""The two layouts that ESM-2 checkpoints come in, read into one description.

======================  =======================================  ==============================
layout                  path                                     sizes from
======================  =======================================  ==============================
fair-esm                ``esm2_t36_3B_UR50D.pt``                 ``cfg`` in the file
Hugging Face            folder with safetensors or ``.bin``      ``config.json``
======================  =======================================  ==============================
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from virnucpro.encoders.weights import (
    Weights,
    counts,
    number,
    read_folder,
    read_json,
    read_pickle,
    tensors_of,
)
from virnucpro.errors import ModelError

VOCABULARY = 33  # <cls> <pad> <eos> <unk>, 27 letters, a null and <mask>
_FAIR_EPS = 1e-5  # torch's default for LayerNorm, which fair-esm's ESM1bLayerNorm keeps
_ROTARY_BASE = 10000.0  # esm.rotary_embedding.RotaryEmbedding
_CFG = {
    "layers": "encoder_layers",
    "width": "encoder_embed_dim",
    "heads": "encoder_attention_heads",
}
_CONFIG = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
)
# Our parameter names and those of the two layouts, within layer {i} and outside of layers.
_FAIR = {
    "attention_norm": ("layers.{i}.self_attn_layer_norm",),
    "qkv": tuple(f"layers.{{i}}.self_attn.{part}_proj" for part in "qkv"),
    "out": ("layers.{i}.self_attn.out_proj",),
    "mlp_norm": ("layers.{i}.final_layer_norm",),
    "fc1": ("layers.{i}.fc1",),
    "fc2": ("layers.{i}.fc2",),
}
_HUB = {
    "attention_norm": ("encoder.layer.{i}.attention.LayerNorm",),
    "qkv": tuple(f"encoder.layer.{{i}}.attention.self.{p}" for p in ("query", "key", "value")),
    "out": ("encoder.layer.{i}.attention.output.dense",),
    "mlp_norm": ("encoder.layer.{i}.LayerNorm",),
    "fc1": ("encoder.layer.{i}.intermediate.dense",),
    "fc2": ("encoder.layer.{i}.output.dense",),
}
_FAIR_ENDS = {"embed": "embed_tokens", "norm": "emb_layer_norm_after"}
_HUB_ENDS = {
    "embed": "embeddings.word_embeddings",
    "norm": "encoder.emb_layer_norm_after",
}


@dataclass(frozen=True)
class Sizes:
    """What a model is built from. ``eps`` is that of its layer norms."""

    layers: int
    width: int
    heads: int
    feed_forward: int
    eps: float
    token_dropout: bool


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk.

    Attributes:
        names: stored names of each parameter of :class:`virnucpro.encoders.esm2_network.Esm2`.
        inv_freq: rotary frequencies, float32 ``[width / heads / 2]``.
    """

    sizes: Sizes
    weights: Weights
    names: Mapping[str, tuple[str, ...]]
    inv_freq: torch.Tensor


def width_of(path: Path) -> int:
    """Embedding width of the model at ``path``, without reading its weights.

    Raises:
        ModelError: as :func:`read_checkpoint`, as far as it can be seen.
    """
    return _config_sizes(path).width if path.is_dir() else _fair_file(path)[0].width


def read_checkpoint(path: Path) -> Checkpoint:
    """Read ``path`` of either layout; tensors stay mapped from the disk.

    Raises:
        ModelError: unreadable, or no ESM-2 model.
    """
    if path.is_dir():
        sizes, weights = _config_sizes(path), read_folder(path).renamed(r"esm\.")
        names, prefix = stored_names(sizes.layers, "transformers"), "encoder.layer"
    else:
        sizes, weights = _fair_file(path)
        names, prefix = stored_names(sizes.layers, "fair-esm"), "layers"
    weights.refuse_more_layers(prefix, sizes.layers)
    return Checkpoint(sizes, weights, names, _inv_freq(weights, sizes))


def _fair_file(path: Path) -> tuple[Sizes, Weights]:
    """A ``.pt`` of fair-esm, whose ``cfg`` is a Namespace or, in newer files, a dict."""
    content = read_pickle(path, allowed=[argparse.Namespace])
    if not isinstance(content, dict) or not {"cfg", "model"} <= set(content):
        raise ModelError(f"{path} is no ESM-2 checkpoint: expected 'cfg' and 'model' in it")
    cfg = _plain(_plain(content["cfg"]).get("model"))
    keys = list(_CFG.values())
    layers, width, heads = counts(cfg, keys, path)
    tensors = tensors_of(content["model"], path)
    weights = Weights(tensors, dict.fromkeys(tensors, path), path)
    weights = weights.renamed(r"encoder\.sentence_encoder\.|encoder\.")
    fc1 = weights.tensors.get("layers.0.fc1.bias")
    feed_forward = 4 * width if fc1 is None else int(fc1.shape[0])
    dropout = bool(cfg.get("token_dropout", True))
    sizes = Sizes(layers, width, heads, feed_forward, _FAIR_EPS, dropout)
    return _checked(sizes, path), weights


def _plain(config: Any) -> dict[str, Any]:
    if isinstance(config, argparse.Namespace):
        return vars(config)
    return config if isinstance(config, dict) else {}


def _config_sizes(folder: Path) -> Sizes:
    """Sizes from ``config.json``."""
    path = folder / "config.json"
    config = read_json(path)
    if config.get("position_embedding_type") != "rotary" or config.get("emb_layer_norm_before"):
        raise ModelError(
            f"{path} is of an older ESM, not of ESM-2 (its positions are "
            f"{config.get('position_embedding_type')!r}, not 'rotary'): use facebook/esm2_..."
        )
    layers, width, heads, feed_forward = counts(config, _CONFIG, path)
    eps = number(config, "layer_norm_eps", path)
    dropout = bool(config.get("token_dropout", False))
    return _checked(Sizes(layers, width, heads, feed_forward, eps, dropout), path)


def _checked(sizes: Sizes, path: Path) -> Sizes:
    if sizes.width % sizes.heads or sizes.width // sizes.heads % 2:
        raise ModelError(f"{path}: width {sizes.width} does not divide by {sizes.heads} heads")
    return sizes


def stored_names(
    layers: int, layout: Literal["fair-esm", "transformers"]
) -> dict[str, tuple[str, ...]]:
    """Names in ``layout`` of each of our parameters; several are stored one below the other."""
    layer, ends = (_FAIR, _FAIR_ENDS) if layout == "fair-esm" else (_HUB, _HUB_ENDS)
    names: dict[str, tuple[str, ...]] = {"embed.weight": (f"{ends['embed']}.weight",)}
    for kind in ("weight", "bias"):
        names[f"norm.{kind}"] = (f"{ends['norm']}.{kind}",)
        for i in range(layers):
            for ours, theirs in layer.items():
                stored = tuple(f"{name.format(i=i)}.{kind}" for name in theirs)
                names[f"blocks.{i}.{ours}.{kind}"] = stored
    return names


def rotary_frequencies(pairs: int) -> torch.Tensor:
    """Those of a model that stores none: float32 ``[pairs]``, half the width of a head."""
    exponents = torch.arange(0, 2 * pairs, 2, dtype=torch.float32) / (2 * pairs)
    return 1.0 / _ROTARY_BASE**exponents


def _inv_freq(weights: Weights, sizes: Sizes) -> torch.Tensor:
    """The stored rotary frequencies, or computed ones where none are stored.

    The stored ones were rounded to float16 with the released weights: computing them anew would
    move the phase by 0.03 rad at position 168. They stand in every layer, or once under a name
    with a literal ``*``.
    """
    pairs = sizes.width // sizes.heads // 2
    keys = [key for key in weights.tensors if key.split(".")[-1] == "inv_freq"]
    if not keys:
        return rotary_frequencies(pairs)
    stored = [weights.take(key, (pairs,)).float() for key in keys]
    for key, value in zip(keys, stored, strict=True):
        if not torch.equal(value, stored[0]) or not bool(torch.isfinite(value).all()):
            raise ModelError(
                f"{weights.origin[key]}: {key!r} is damaged, or differs from {keys[0]!r}"
            )
    return stored[0].clone()
