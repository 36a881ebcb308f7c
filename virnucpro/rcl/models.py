"""Models of the RCL predictor: networks, all that is needed to use them, and their files.

The networks give each residue of a protein the probability to lie in the RCL. Their layers, and the
names of their parameters, are those of RCL-identifier (MIT license), so that its checkpoints can be
loaded.

Shapes: B proteins, L residues (padded), E numbers per residue, C channels. Every network is made
with the width E and its settings. It takes float32 ``[B, L, E]`` and a mask, bool ``[B, L]``, and
returns logits ``[B, L, 2]``: not RCL, RCL.

The mask is True for the residues of a protein. What stands behind its end has no influence: the
logits of a protein are the same in every batch, apart from rounding. Activations behind the end are
set to zero after every layer. Batch norm, pooling and interpolation average over residues only, and
an LSTM ends where the protein ends. Inner layers get the mask as float ``[B, 1, L]``. Networks of
RCL-identifier were trained on proteins that were padded with zeros to 1,024 residues; their mask is
True for all of these.

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
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from msgspec import Meta, Struct
from safetensors.torch import save
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from virnucpro.contracts import Json
from virnucpro.encoders.esm2 import FAMILY as ESM2
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
from virnucpro.rcl.settings import CnnSettings, LstmSettings, UnetSettings
from virnucpro.store.disk import Disk
from virnucpro.store.hashed import hashed
from virnucpro.training.loop import MaskedBatchNorm

RCL = 1
"""Index of the class "residue of the RCL" in the logits."""


class RclCnn(nn.Module):
    """A stack of convolutions, each with batch norm, ReLU and dropout."""

    def __init__(self, width: int, settings: CnnSettings) -> None:
        super().__init__()
        ends = pairwise((width, *settings.channels))
        self.conv_layers = nn.ModuleList()
        for (before, after), kernel in zip(ends, settings.kernel_sizes, strict=True):
            conv = nn.Conv1d(before, after, kernel, padding=kernel // 2)
            self.conv_layers.append(nn.ModuleDict({"conv": conv, "bn": MaskedBatchNorm(after)}))
        self.dropout = nn.Dropout(settings.dropout)
        self.output = nn.Sequential(nn.Conv1d(settings.channels[-1], 2, 1))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[B, L, 2]``."""
        residues = mask[:, None].to(x.dtype)
        x = x.transpose(1, 2) * residues  # [B, E, L]
        for layer in self.conv_layers:
            conv, norm = layer.children()
            x = self.dropout(F.relu(norm(conv(x), residues)))  # zeros behind the end stay zeros
        logits: torch.Tensor = self.output(x)  # [B, 2, L]
        return logits.transpose(1, 2)


class DoubleConv(nn.Module):
    """Two convolutions of 7 residues; ``[B, C, L]`` to ``[B, C', L]``."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv1d(inputs, outputs, 7, padding=3),
            MaskedBatchNorm(outputs),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Conv1d(outputs, outputs, 7, padding=3),
            MaskedBatchNorm(outputs),
            nn.ReLU(),
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the activations of the block."""
        for layer in self.double_conv:
            x = layer(x, mask) if isinstance(layer, MaskedBatchNorm) else layer(x)
        return x


class AttentionGate(nn.Module):
    """Weighs each residue of a skip connection by what the decoder knows there."""

    def __init__(self, gate: int, skip: int) -> None:
        super().__init__()
        self.W_gate = nn.Conv1d(gate, skip // 2, 1)
        self.W_skip = nn.Conv1d(skip, skip // 2, 1)
        self.psi = nn.Conv1d(skip // 2, 1, 1)

    def forward(self, gate: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        """Return ``skip`` ``[B, C, L]`` times weights between 0 and 1 per residue."""
        inner = F.relu(self.W_gate(gate) + self.W_skip(skip))
        return skip * torch.sigmoid(self.psi(inner))  # weights [B, 1, L]


class RclUnet(nn.Module):
    """A U-Net along the sequence, with attention gates on its skip connections.

    With ``align_corners``, interpolation stretches the positions over the padded length, as in
    RCL-identifier. Else a position is placed in the middle of the two that it stands for, so that
    the logits do not depend on the padding.
    """

    align_corners = False

    def __init__(self, width: int, settings: UnetSettings) -> None:
        super().__init__()
        base_filters, dropout = settings.base_filters, settings.dropout
        channels = [base_filters * 2 ** min(level, 2) for level in range(settings.depth)]
        self.input_proj = nn.Conv1d(width, base_filters, 1)
        self.encoder_blocks = nn.ModuleList(
            DoubleConv(before, after, dropout)
            for before, after in pairwise([base_filters, *channels])
        )
        self.bottleneck = DoubleConv(channels[-1], 2 * channels[-1], dropout)
        gates, decoders = [], []
        below = 2 * channels[-1]
        for level in reversed(range(settings.depth)):
            after = base_filters * 2 ** max(level - 1, 0)
            gates.append(AttentionGate(below, channels[level]))
            decoders.append(DoubleConv(below + channels[level], after, dropout))
            below = after
        self.attention_gates = nn.ModuleList(gates if settings.attention else [])
        self.decoder_blocks = nn.ModuleList(decoders)
        self.output = nn.Sequential(
            nn.Conv1d(below, base_filters, 3, padding=1), nn.ReLU(), nn.Conv1d(base_filters, 2, 1)
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[B, L, 2]``.

        A position below the top stands for one residue or more; at an odd end it stands for those
        that there are.
        """
        length, padding = x.shape[1], -x.shape[1] % 2 ** len(self.encoder_blocks)
        masks = [F.pad(mask, (0, padding))[:, None].to(x.dtype)]
        x = F.pad(x, (0, 0, 0, padding)).transpose(1, 2)  # [B, E, L]
        x = self.input_proj(x * masks[0]) * masks[0]
        skips = []
        for block in self.encoder_blocks:
            skips.append(block(x, masks[-1]))
            present = F.avg_pool1d(masks[-1], 2)  # share of residues: 0, 0.5 or 1
            x = F.avg_pool1d(skips[-1], 2) / present.clamp(min=0.5)
            masks.append((present > 0).to(x.dtype))
        x, below = self.bottleneck(x, masks[-1]), masks.pop()
        corners = self.align_corners
        doubled = partial(F.interpolate, scale_factor=2, mode="linear", align_corners=corners)
        for level, skip in enumerate(reversed(skips)):
            present = doubled(below).clamp(min=0.25)
            below = masks.pop()
            x = doubled(x) / present * below
            if self.attention_gates:
                skip = self.attention_gates[level](x, skip)
            x = self.decoder_blocks[level](torch.cat([skip, x], dim=1), below)
        logits: torch.Tensor = self.output(x)  # [B, 2, L]
        return logits.transpose(1, 2)[:, :length]


class RclLstm(nn.Module):
    """A bidirectional LSTM over the residues."""

    def __init__(self, width: int, settings: LstmSettings) -> None:
        super().__init__()
        hidden_dim, layers, dropout = settings.hidden_dim, settings.num_layers, settings.dropout
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(
            width, hidden_dim, layers, batch_first=True, bidirectional=True, dropout=between
        )
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Sequential(
            nn.Linear(2 * hidden_dim, hidden_dim),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_dim, 2),
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[B, L, 2]`` of proteins of one residue or more.

        The pass from the end begins at the last residue.
        """
        lengths = mask.sum(1).cpu()
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        packed, _ = self.lstm(packed)
        states, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
        logits: torch.Tensor = self.fc(self.dropout(states))
        return logits


NETWORKS: dict[str, type[nn.Module]] = {"cnn": RclCnn, "unet": RclUnet, "lstm": RclLstm}
"""The kinds of networks. Each takes the width of the encoding, and its settings."""


# --- their use, and their files -------------------------------------------------------------------

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
    f"esm2_{name.split('_')[2].lower()}": (name, width)
    for name, (_, width, _) in ESM2.released.items()
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
