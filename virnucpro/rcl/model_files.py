"""Model files of the RCL predictor, read and written.

Two formats are read. The project's own is safetensors, with float16 weights and one JSON text under
the key ``virnucpro`` of its metadata::

    {"schema": 1, "content": "rcl", "kind": "unet", "settings": {"depth": 4, ...},
     "encoding": "onehot", "padding": "masked", "threshold": 0.5, "training": {...}}

The other is the checkpoint of RCL-identifier, ``best_model.pt``, alone or in a folder ``run_NNN``.
It is read without running what is pickled. Its configuration is not always the one of its weights,
so kind, sizes and encoding are told from the names and shapes of the weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from virnucpro.encoders.weights import (
    Weights,
    check_file,
    read_pickle,
    read_safetensors,
    tensors_of,
)
from virnucpro.errors import ModelError
from virnucpro.rcl.models import ENCODING_OF_WIDTH, MASKED, PADDED, RclModel
from virnucpro.rcl.networks import NETWORKS
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import parse_json

SCHEMA = 1
KEY = "virnucpro"
CONTENT = "rcl"
BEST = ("best_model.safetensors", "best_model.pt")  # in the folder of a training
AGAIN = "it is damaged, or not a model of the RCL predictor"
# A U-Net halves the window at every level; more layers than this no network has.
MOST_LEVELS, MOST_LAYERS = 10, 64


def write_rcl_model(path: Path, model: RclModel, disk: Disk) -> None:
    """Write a model in the project's own format, atomically; equal models give equal bytes.

    Weights are stored as float16. The statistics of batch norm, which may be larger than float16
    allows, are stored as float32.

    Raises:
        ModelError: a weight is not finite, also as float16.
        OutputError: the file cannot be written.
    """
    tensors = {}
    for name, value in model.network.state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        dtype = torch.float32 if ".running_" in name else torch.float16
        tensors[name.removeprefix("module.")] = value.detach().cpu().to(dtype).contiguous()
    metadata = {
        "schema": SCHEMA,
        "content": CONTENT,
        "kind": model.kind,
        "settings": dict(model.settings),
        "encoding": model.encoding,
        "padding": model.padding,
        "threshold": model.threshold,
        "training": dict(model.training),
    }
    _network(Weights(tensors, dict.fromkeys(tensors, path), path), None)
    disk.save(path, save(tensors, {KEY: json.dumps(metadata, sort_keys=True)}))


def read_rcl_model(path: Path) -> RclModel:
    """Read a model: a file of either format, or the folder of a training, on the CPU.

    Raises:
        ModelError: it is missing, damaged, refused, or not a model of the RCL predictor.
    """
    if path.is_dir():
        files = [path / name for name in BEST if (path / name).exists()]
        if not files:
            raise ModelError(
                f"{path} has no model: expected {' or '.join(BEST)}, as in a folder run_001"
            )
        path = files[0]
    check_file(path)
    sha256 = sha256_of(path)
    if path.suffix == ".safetensors":
        metadata = _read_metadata(path)
        tensors: Any = read_safetensors(path)
    else:
        content = read_pickle(path)
        if not isinstance(content, dict) or "model_state_dict" not in content:
            raise ModelError(f"{path} has no 'model_state_dict': {AGAIN}")
        tensors = content["model_state_dict"]
        metadata = _metadata_of_checkpoint(content)
    network, kind, settings, width = _network(_weights(tensors, path), metadata.get("dropout"))
    encoding = ENCODING_OF_WIDTH.get(width)
    if encoding is None or metadata.get("encoding", encoding) != encoding:
        named = repr(metadata["encoding"]) if encoding else "any encoding"
        raise ModelError(f"{path}: {width} numbers per residue are not those of {named}: {AGAIN}")
    facts = {name: metadata[name] for name in ("padding", "threshold", "training")}
    return RclModel(network, kind, settings, encoding, sha256=sha256, **facts)


def _read_metadata(path: Path) -> dict[str, Any]:
    """Return what a file of the project's own format says of itself, all checked."""
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(KEY)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} cannot be read ({error}): fetch it again") from error
    metadata: Any = None
    with suppress(ValueError):
        metadata = parse_json(text or "null")
    if not isinstance(metadata, dict) or metadata.get("content") != CONTENT:
        raise ModelError(f"{path} is not a model of the RCL predictor")
    schema, threshold = metadata.get("schema"), metadata.get("threshold")
    if isinstance(schema, int) and schema > SCHEMA:
        raise ModelError(f"{path} was written by a newer virnucpro: update this one")
    good = (
        schema == SCHEMA
        and metadata.get("kind") in NETWORKS
        and metadata.get("padding") in (MASKED, PADDED)
        and isinstance(metadata.get("encoding"), str)
        and isinstance(threshold, int | float)
        and 0 <= threshold <= 1
        and all(isinstance(metadata.get(name), dict) for name in ("settings", "training"))
    )
    if not good:
        raise ModelError(f"{path}: its metadata is damaged: fetch it again")
    return {**metadata, "dropout": metadata["settings"].get("dropout")}


def _metadata_of_checkpoint(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint of RCL-identifier says, in the words of the own format."""
    facts = {name: content.get(name) for name in ("epoch", "val_f1")}
    known = {n: v for n, v in facts.items() if isinstance(v, int | float) and math.isfinite(v)}
    return {"padding": PADDED, "threshold": 0.5, "training": known}


def _weights(content: Any, path: Path) -> Weights:
    """Return tensors by their names in a network, without what wrappers put before them."""
    tensors = tensors_of(content, path)
    for name, value in tensors.items():
        # A tensor with a stride of 0 may claim any size; its storage is what the file holds.
        if (
            value.layout != torch.strided
            or value.is_quantized
            or value.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.int64)
            or value.numel() * value.element_size() > value.untyped_storage().nbytes()
        ):
            raise ModelError(f"{path}: {name!r} does not hold weights: {AGAIN}")
    return Weights(tensors, dict.fromkeys(tensors, path), path).renamed(r"(module\.|_orig_mod\.)*")


def _network(weights: Weights, dropout: Any) -> tuple[nn.Module, str, dict[str, Any], int]:
    """Make a network from its weights, all checked; return also its kind, settings and width."""
    kind, width, settings = _inferred(weights)
    if isinstance(dropout, int | float) and 0 <= dropout < 1:
        settings["dropout"] = float(dropout)
    with torch.device("meta"):
        network = NETWORKS[kind](width, **settings)
    state = {}
    expected = network.state_dict()
    for name, empty in expected.items():
        if name.endswith("num_batches_tracked"):  # only a training needs it
            state[name] = torch.zeros((), dtype=torch.int64)
            continue
        value = weights.take(name, empty.shape).to(torch.float32)
        if not bool(torch.isfinite(value).all()):
            raise ModelError(f"{weights.place}: NaN or infinite values in {name}: {AGAIN}")
        if name.endswith("running_var") and bool((value < 0).any()):
            raise ModelError(f"{weights.place}: negative values in {name}: {AGAIN}")
        state[name] = value.clone()
    if unknown := sorted(weights.tensors.keys() - expected.keys()):
        raise ModelError(f"{weights.place}: {unknown[0]!r} is not part of a {kind}: {AGAIN}")
    network.load_state_dict(state, assign=True)
    network.requires_grad_(False)
    return network.eval(), kind, settings, width


def _inferred(weights: Weights) -> tuple[str, int, dict[str, Any]]:
    """Return kind, width and settings of the network that weights belong to."""
    shapes = {name: tuple(value.shape) for name, value in weights.tensors.items()}

    def layers(pattern: str, dimensions: int, most: int) -> list[tuple[int, ...]]:
        """Return the shapes of the weights of all layers."""
        sizes: list[tuple[int, ...]] = []
        while (name := pattern.format(len(sizes))) in shapes:
            sizes.append(shapes[name])
            if len(sizes) > most or len(sizes[-1]) != dimensions or 0 in sizes[-1]:
                raise ModelError(f"{weights.place}: {name!r} has a wrong shape: {AGAIN}")
        return sizes

    if sizes := layers("conv_layers.{}.conv.weight", 3, MOST_LAYERS):
        kernels = [kernel for _, _, kernel in sizes]
        if any(kernel % 2 == 0 for kernel in kernels):
            raise ModelError(f"{weights.place}: a convolution of even length: {AGAIN}")
        channels = [outputs for outputs, _, _ in sizes]
        return "cnn", sizes[0][1], {"channels": channels, "kernel_sizes": kernels}
    levels = layers("encoder_blocks.{}.double_conv.0.weight", 3, MOST_LEVELS)
    projection = shapes.get("input_proj.weight", ())
    if levels and len(projection) == 3 and 0 not in projection:
        attention = any(name.startswith("attention_gates.") for name in shapes)
        settings = {"base_filters": projection[0], "depth": len(levels), "attention": attention}
        return "unet", projection[1], settings
    if sizes := layers("lstm.weight_ih_l{}", 2, MOST_LAYERS):
        hidden = max(sizes[0][0] // 4, 1)  # of four gates
        return "lstm", sizes[0][1], {"hidden_dim": hidden, "num_layers": len(sizes)}
    raise ModelError(f"{weights.place} has the weights of no known network: {AGAIN}")
