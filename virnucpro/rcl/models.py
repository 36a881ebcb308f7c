"""Models of the RCL predictor: networks with all that is needed to use them, and their files.

Two formats of files are read. The project's own is safetensors, with float16 weights and one JSON
text under the key ``virnucpro`` of its metadata::

    {"schema": 1, "content": "rcl", "encoding": "onehot", "threshold": 0.5, "training": {...}}

The other is the checkpoint of RCL-identifier, ``best_model.pt``, alone or in a folder ``run_NNN``.
It is read without running what is pickled, and every protein is padded with zeros to 1,024 residues
for it. Its configuration is not always the one of its weights, so the kind of the network,
its sizes and its encoding are told from the names and shapes of the weights.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from msgspec import Meta, Struct
from safetensors.torch import save
from torch import nn

from virnucpro.contracts import Json
from virnucpro.encoders.weights import (
    Tensors,
    as_type,
    load_weights,
    read_metadata,
    read_pickle,
    read_safetensors,
    renamed,
)
from virnucpro.errors import ModelError
from virnucpro.rcl.features import RESIDUE_ENCODINGS
from virnucpro.rcl.networks import RCL, RclCnn, RclLstm, RclUnet
from virnucpro.rcl.settings import CnnSettings, LstmSettings, UnetSettings
from virnucpro.store.disk import Disk
from virnucpro.store.hashed import hashed

Floats = npt.NDArray[np.float32]
FeaturesOfResidues = Callable[[Sequence[str]], Sequence[Floats]]
"""Returns float32 ``[L, width]`` for each protein of L residues."""

WINDOW = 1024
"""Residues that a network sees at once: RCL-identifier takes proteins up to this length."""
WINDOW_STEP = 512
"""Residues between the starts of two windows of a longer protein. The domain of a serpin has some
380 residues, so that each of them lies within one window as a whole."""
BATCH_RESIDUES = {"cpu": 1 << 14, "cuda": 1 << 18}
"""Residues of a batch with its padding, by the type of the device."""

RELEASED_ESM2 = {
    "esm2_8m": ("esm2_t6_8M_UR50D", 320),
    "esm2_35m": ("esm2_t12_35M_UR50D", 480),
    "esm2_150m": ("esm2_t30_150M_UR50D", 640),
    "esm2_650m": ("esm2_t33_650M_UR50D", 1280),
    "esm2_3b": ("esm2_t36_3B_UR50D", 2560),
    "esm2_15b": ("esm2_t48_15B_UR50D", 5120),
}
"""The encodings by ESM-2 models: the released model and its width. RCL-identifier named one."""
ENCODING_OF_WIDTH = {encoding.width: encoding.name for encoding in RESIDUE_ENCODINGS.values()} | {
    width: name for name, (_, width) in RELEASED_ESM2.items()
}
KEY = "virnucpro"
BEST = ("best_model.safetensors", "best_model.pt")  # in the folder of a training
AGAIN = "it is damaged, or not a model of the RCL predictor"


class Metadata(Struct):
    """What a file of the project's own format says of itself; the weights tell the network."""

    schema: Literal[1]
    content: Literal["rcl"]
    encoding: str | None
    threshold: Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class RclModel:
    """A network in evaluation mode, with all that is needed to use it.

    ``threshold`` is the one to predict with. A network of RCL-identifier takes proteins that are
    ``padded`` to ``WINDOW`` residues.
    """

    network: nn.Module
    encoding: str
    threshold: float = 0.5
    sha256: str = ""
    padded: bool = False

    def probabilities(
        self,
        sequences: Sequence[str],
        *,
        batch_size: int | None = None,
        features: FeaturesOfResidues | None = None,
    ) -> list[Floats]:
        """Return the probability of each residue to lie in the RCL, float32 ``[L]`` per protein.

        Proteins longer than ``WINDOW`` are taken in overlapping windows. Each residue has the
        probability of the window in which it is farthest from the ends. Batches hold sequences of
        similar length, ``batch_size`` of them, or as many as ``BATCH_RESIDUES`` allows.
        ``features`` encodes the windows; it is needed for an ESM-2 encoding only.
        """
        results: list[Floats] = [np.zeros(len(text), np.float32) for text in sequences]
        windows = [
            (sequence[start : start + WINDOW], result[kept], kept.start - start)
            for sequence, result in zip(sequences, results, strict=True)
            for start, kept in windows_of(len(sequence))
        ]
        windows.sort(key=lambda window: len(window[0]), reverse=True)
        device, first = next(self.network.parameters()).device, 0
        while first < len(windows):
            length = WINDOW if self.padded else len(windows[first][0])
            size = batch_size or max(BATCH_RESIDUES[device.type] // length, 1)
            batch = windows[first : first + size]
            first += size
            texts = [text for text, _, _ in batch]
            if features:
                rows = features(texts)
            else:
                rows = [RESIDUE_ENCODINGS[self.encoding].encode(text) for text in texts]
            x = np.zeros((len(rows), length, rows[0].shape[1]), np.float32)
            for padded, values in zip(x, rows, strict=True):
                padded[: len(values)] = values
            ends = torch.tensor([[length if self.padded else len(values)] for values in rows])
            mask = torch.arange(length) < ends
            with torch.inference_mode():
                logits = self.network(torch.from_numpy(x).to(device), mask.to(device))
                found = logits.softmax(-1)[..., RCL].cpu().numpy()
            for (_, result, start), row in zip(batch, found, strict=True):
                result[:] = row[start : start + len(result)]
        return results


def windows_of(length: int) -> list[tuple[int, slice]]:
    """Return the windows of a protein: the first residue, and the residues that are taken from it.

    The windows overlap, and every residue is taken from one of them: from the middle of the
    overlap on, from the later one. There is none for an empty protein.

    >>> windows_of(1600)
    [(0, slice(0, 768, None)), (512, slice(768, 1056, None)), (576, slice(1056, 1600, None))]
    """
    last = max(length - WINDOW, 0)
    starts = [*range(0, last, WINDOW_STEP), last]
    edges = [0, *((one + WINDOW + two) // 2 for one, two in pairwise(starts)), length]
    kept = [slice(start, stop) for start, stop in pairwise(edges)]
    return list(zip(starts, kept, strict=True)) if length else []


def write_rcl_model(
    path: Path,
    weights: Mapping[str, torch.Tensor],
    disk: Disk,
    *,
    encoding: str,
    threshold: float = 0.5,
    training: Mapping[str, Json] | None = None,
) -> None:
    """Write a model in the project's own format, atomically; equal models give equal bytes.

    ``training`` says how it was made. ``weights`` are stored as float16. The statistics of batch
    norm, which may be larger than float16 allows, are stored as float32.
    """
    tensors = {}
    for name, value in weights.items():
        if name.endswith("num_batches_tracked"):
            continue
        dtype = torch.float32 if ".running_" in name else torch.float16
        tensors[name] = value.detach().cpu().to(dtype).contiguous()
    facts = {"schema": 1, "content": "rcl", "encoding": encoding, "threshold": threshold}
    facts["training"] = training
    _network(tensors, path, padded=False)
    disk.save(path, save(tensors, {KEY: json.dumps(facts, sort_keys=True)}))


def read_rcl_model(path: Path) -> RclModel:
    """Read a model: a file of either format, or the folder of a training, on the CPU."""
    if path.is_dir():
        files = [path / name for name in BEST]
        path = next((file for file in files if file.exists()), files[0])
    padded, about = path.suffix != ".safetensors", Metadata(1, "rcl", None, 0.5)
    if padded:
        content = as_type(read_pickle(path), dict[str, Any], path)
        tensors = as_type(content.get("model_state_dict"), Tensors, path)
    else:
        tensors, about = read_safetensors(path), as_type(read_metadata(path, KEY), Metadata, path)
    tensors = renamed(tensors, r"(module\.|_orig_mod\.)*")
    # A tensor with a stride of 0 may claim any size.
    if sum(value.numel() for value in tensors.values()) > path.stat().st_size:
        raise ModelError(f"{path} is smaller than its weights: {AGAIN}")
    network, width = _network(tensors, path, padded=padded)
    told = ENCODING_OF_WIDTH.get(width)
    if told is None or about.encoding not in (None, told):
        raise ModelError(f"{path}: no encoding of a model has {width} numbers per residue: {AGAIN}")
    return RclModel(network, told, about.threshold, hashed(path).sha256, padded)


def _network(
    tensors: Mapping[str, torch.Tensor], place: Path, *, padded: bool
) -> tuple[nn.Module, int]:
    """Make a network from its weights, all checked; return also its width."""
    try:
        with torch.device("meta"):
            network, width = _inferred(tensors)
    except (LookupError, ValueError) as error:
        raise ModelError(f"{place}: the weights are of no known network: {AGAIN}") from error
    if isinstance(network, RclUnet):
        network.align_corners = padded
    load_weights(network, tensors, place)
    return network, width


def _inferred(tensors: Mapping[str, torch.Tensor]) -> tuple[nn.Module, int]:
    """Return the network that weights belong to, without them, and its width.

    Raises:
        LookupError or ValueError: it is none of these networks.
    """
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}

    def layers(pattern: str) -> list[tuple[int, ...]]:
        """Return the shapes of the weights of all layers."""
        names = itertools.takewhile(shapes.__contains__, map(pattern.format, itertools.count()))
        return [shapes[name] for name in names]

    if sizes := layers("conv_layers.{}.conv.weight"):
        channels, widths, kernels = zip(*sizes, strict=True)
        return RclCnn(widths[0], CnnSettings(channels, kernels)), widths[0]
    if levels := layers("encoder_blocks.{}.double_conv.0.weight"):
        base_filters, width, _ = shapes["input_proj.weight"]
        attention = any(name.startswith("attention_gates.") for name in shapes)
        unet = UnetSettings(base_filters, len(levels), attention=attention)
        return RclUnet(width, unet), width
    sizes = layers("lstm.weight_ih_l{}")
    gates, width = sizes[0]  # four of them
    return RclLstm(width, LstmSettings(max(gates // 4, 1), len(sizes))), width
