"""Models of the RCL predictor: networks with all that is needed to use them, and their files.

Two formats of files are read. The project's own is safetensors, with float16 weights and one JSON
text under the key ``virnucpro`` of its metadata::

    {"schema": 1, "content": "rcl", "kind": "unet", "settings": {"depth": 4, ...},
     "encoding": "onehot", "padding": "masked", "threshold": 0.5, "training": {...}}

The other is the checkpoint of RCL-identifier, ``best_model.pt``, alone or in a folder ``run_NNN``.
It is read without running what is pickled. Its configuration is not always the one of its weights,
so kind, sizes and encoding are told from the names and shapes of the weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from virnucpro.contracts import Json
from virnucpro.encoders.weights import (
    Weights,
    check_file,
    read_pickle,
    read_safetensors,
    tensors_of,
)
from virnucpro.errors import ModelError
from virnucpro.rcl.encodings import RESIDUE_ENCODINGS
from virnucpro.rcl.networks import NETWORKS, RCL
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import parse_json

Floats = npt.NDArray[np.float32]
FeaturesOfResidues = Callable[[Sequence[str]], Sequence[Floats]]
"""Returns float32 ``[L, width]`` for each protein of L residues."""

Padding = Literal["masked", "padded 1024"]
MASKED: Padding = "masked"
"""The padding has no influence: the network is given a mask."""
PADDED: Padding = "padded 1024"
"""Every protein is padded with zeros to ``WINDOW`` residues, as RCL-identifier does."""

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
SCHEMA = 1
KEY = "virnucpro"
CONTENT = "rcl"
BEST = ("best_model.safetensors", "best_model.pt")  # in the folder of a training
AGAIN = "it is damaged, or not a model of the RCL predictor"
# A U-Net halves the window at every level; more layers than this no network has.
MOST_LEVELS, MOST_LAYERS = 10, 64


@dataclass(frozen=True)
class RclModel:
    """A network with all that is needed to use it.

    Attributes:
        network: in evaluation mode, float32.
        kind: ``cnn``, ``unet`` or ``lstm``.
        settings: the keyword arguments that the network was made with, beside the width.
        encoding: ``onehot``, ``blosum``, or a name of ``RELEASED_ESM2``.
        padding: ``masked`` or ``padded 1024``.
        threshold: probability above which a residue counts, unless the user says otherwise.
        training: facts on the training, as they were written down.
        sha256: of the file; empty where the model was not read from one.
    """

    network: nn.Module
    kind: str
    settings: Mapping[str, Json]
    encoding: str
    padding: Padding = MASKED
    threshold: float = 0.5
    training: Mapping[str, Json] = field(default_factory=dict)
    sha256: str = ""

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
        features = features or RESIDUE_ENCODINGS[self.encoding].encode_all
        results = [np.zeros(len(sequence), np.float32) for sequence in sequences]
        windows = [
            (number, start, kept)
            for number, sequence in enumerate(sequences)
            for start, kept in windows_of(len(sequence))
        ]
        windows.sort(key=lambda window: min(len(sequences[window[0]]), WINDOW))
        device = next(self.network.parameters()).device
        lengths = [min(len(sequences[number]), WINDOW) for number, _, _ in windows]
        with torch.inference_mode():
            for batch in self._batches(lengths, batch_size, BATCH_RESIDUES[device.type]):
                chosen = windows[batch]
                texts = [sequences[number][start : start + WINDOW] for number, start, _ in chosen]
                rows = self._batch_probabilities(features(texts), device)
                for (number, start, kept), row in zip(chosen, rows, strict=True):
                    results[number][kept] = row[kept.start - start : kept.stop - start]
        return results

    def _batches(self, lengths: Sequence[int], size: int | None, most: int) -> Iterator[slice]:
        """Yield the batches of windows of these ``lengths``, which rise: ``most`` residues each."""
        start = 0
        for stop, length in enumerate([*lengths, 0]):
            full = (stop + 1 - start) * self._padded(length) > most
            full = stop - start == size if size else full
            if stop > start and (full or stop == len(lengths)):
                yield slice(start, stop)
                start = stop

    def _padded(self, longest: int) -> int:
        return WINDOW if self.padding == PADDED else longest

    def _batch_probabilities(self, features: Sequence[Floats], device: torch.device) -> Floats:
        """Return float32 ``[B, L]``; what stands behind the end of a protein means nothing."""
        lengths = torch.tensor([len(rows) for rows in features])
        length = self._padded(int(lengths.max()))
        x = np.zeros((len(features), length, features[0].shape[1]), np.float32)
        for row, values in zip(x, features, strict=True):
            row[: len(values)] = values
        mask = None
        if self.padding == MASKED:
            mask = (torch.arange(length) < lengths[:, None]).to(device)
        logits = self.network(torch.from_numpy(x).to(device), mask)
        probabilities: Floats = logits.softmax(-1)[..., RCL].cpu().numpy()
        return probabilities


def windows_of(length: int) -> list[tuple[int, slice]]:
    """Return the windows of a protein: the first residue, and the residues that are taken from it.

    The windows overlap, and every residue is taken from one of them: from the middle of the
    overlap on, from the later one. There is none for an empty protein.

    >>> windows_of(1600)
    [(0, slice(0, 768, None)), (512, slice(768, 1056, None)), (576, slice(1056, 1600, None))]
    """
    if length <= WINDOW:
        return [(0, slice(0, length))] if length else []
    starts = [*range(0, length - WINDOW, WINDOW_STEP), length - WINDOW]
    middles = [(earlier + WINDOW + later) // 2 for earlier, later in pairwise(starts)]
    edges = [0, *middles, length]
    return [
        (start, slice(first, stop))
        for start, (first, stop) in zip(starts, pairwise(edges), strict=True)
    ]


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
    _network(Weights(tensors, path), None)
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
    return Weights(tensors, path).renamed(r"(module\.|_orig_mod\.)*")


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
