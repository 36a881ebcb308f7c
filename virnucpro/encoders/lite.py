"""The lite encoder: small, trained by ``examples/lite/train.py``, fast on any CPU.

It reads whole chunks, on both strands, whether they have an open frame or not. In this order: the
network, the encoder, its file, and the family.

The network reads k-mers of six bases, at every place of both strands. One branch takes a k-mer as
six bases, the other one, frame by frame, as two codons. A k-mer always has the same vector in a
branch, so the first layer of a branch is a table, and the mean of three of them goes on. Two
convolutions follow, and then mostly means over all places. The design and the sizes follow
DeepMicroClass (Hou et al. 2024, NAR Genomics and Bioinformatics 6(2)), whose first layers are
convolutions over bases and codons. The same weights read both strands, so a chunk and its reverse
complement have the same embedding, except for rounding.

A file is safetensors with the key ``virnucpro_lite`` in its metadata::

    {"schema": 2, "shape": {"dim": 256, ...}, "extra": {...}}

``shape`` is :class:`LiteShape`. The tensors are those of :class:`LiteNetwork`, in 16 bits where
they are large. The encoder that the package ships is called ``lite``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from msgspec import Meta
from safetensors.torch import save
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from virnucpro.compute.layers import torch_dtype
from virnucpro.compute.threads import CoreThreads, keep_freed_memory, one_thread
from virnucpro.contracts import Json, ReportProgress
from virnucpro.encoders.family import BASES, EncoderFamily, EncoderSource, OpenOptions
from virnucpro.encoders.weights import (
    Embedding,
    as_type,
    load_weights,
    read_metadata,
    read_safetensors,
)
from virnucpro.errors import ModelError
from virnucpro.precision import PRECISIONS
from virnucpro.settings import SHORTEST_WHOLE

UNKNOWN = 4
"""The number of a letter that is none of A, C, G and T (0 to 3)."""
WORD = 6
"""Bases per word."""
WORDS = 4**WORD
"""How many words there are; also the number of a word with an unknown letter."""
POOLED = 3
"""Words, and later places, of which the mean is taken."""

_NUMBERS = np.full(256, UNKNOWN, np.uint8)
_NUMBERS[np.frombuffer(b"ACGTacgt", np.uint8)] = [0, 1, 2, 3] * 2


def base_numbers(sequences: Sequence[str]) -> npt.NDArray[np.uint8]:
    """Return the bases of sequences of one length as numbers 0 to 4: uint8 ``[n, L]``."""
    letters = np.frombuffer("".join(sequences).encode("ascii", "replace"), np.uint8)
    return _NUMBERS[letters].reshape(len(sequences), -1)


Size = Annotated[int, Meta(ge=1, le=4096)]


@dataclass(frozen=True)
class LiteShape:
    """The sizes of a network. DeepMicroClass has channels of 128 and 256, and no heads."""

    word_width: Size = 64
    channels: tuple[Size, Size] = (192, 384)  # of the two convolutions of each branch
    kernel: Size = 3  # places that a convolution sees at a time
    heads: Size = 8  # of the attention; they share the last channels among them
    dim: Size = 256  # of an embedding
    groups: Size = 1  # of channels that convolutions keep apart: networks that were joined


class LiteNetwork(nn.Module):
    """Bases to embeddings."""

    def __init__(self, shape: LiteShape) -> None:
        super().__init__()
        self.shape = shape
        self.bases: _Branch | _FusedBranch = _Branch(shape, letters=WORD)
        self.codons: _Branch | _FusedBranch = _Branch(shape, letters=WORD // 3)
        last = shape.channels[-1]
        self.attention = nn.Linear(last, shape.heads)
        self.pooled_norm = nn.BatchNorm1d(5 * last)
        self.out = nn.Linear(5 * last, shape.dim)
        self.out_norm = nn.BatchNorm1d(shape.dim)

    def forward(self, bases: torch.Tensor) -> torch.Tensor:
        """Embed chunks of one length: int64 ``[B, L]``, L at least 30, to float32 ``[B, dim]``."""
        chunks, last = len(bases), self.shape.channels[-1]
        complement = torch.where(bases < UNKNOWN, 3 - bases, bases).flip(1)
        strands = torch.stack([bases, complement], dim=1).view(2 * chunks, -1)
        # The word that begins at each base, [strands, L - WORD + 1].
        digits = torch.where(strands < UNKNOWN, strands, WORDS)
        count = strands.shape[1] - WORD + 1
        words = digits[:, :count]
        for offset in range(1, WORD):
            words = words * 4 + digits[:, offset : offset + count]
        words = words.clamp(max=WORDS)
        third = words.shape[1] // 3  # each frame has each third word, from its first place on
        frames = words[:, : 3 * third].view(-1, third, 3).transpose(1, 2).reshape(-1, third)
        pooled = []
        for branch, rows in ((self.bases, words), (self.codons, frames)):
            places = branch(rows)
            means = places.mean(dim=1, dtype=torch.float32).view(chunks, -1, last)
            pooled += [means.mean(dim=1), means.amax(dim=1)]
        # Where there is a gene, its own frame says more than the other five: the places of all
        # frames, [B, places, channels], are weighed.
        places = places.reshape(chunks, -1, last)
        weights = self.attention(places).float().softmax(dim=1).to(places.dtype)
        values = places.view(*places.shape[:2], self.shape.heads, -1)
        pooled.append((weights.unsqueeze(3) * values).sum(dim=1).flatten(1).float())
        merged = self.out(self.pooled_norm(torch.cat(pooled, dim=1)))
        embedding: torch.Tensor = F.relu(self.out_norm(merged.float()))
        return embedding

    def fused(self) -> LiteNetwork:
        """Put what a trained network need not compute again into other layers, and return it.

        It then computes in fp32, on a CPU, with fewer multiplications.
        """
        assert isinstance(self.bases, _Branch)
        assert isinstance(self.codons, _Branch)
        self.eval()
        with torch.no_grad():
            self.bases, self.codons = _FusedBranch(self.bases), _FusedBranch(self.codons)
        self.out = fuse_linear_bn_eval(self.out, self.out_norm)
        self.out_norm = nn.Identity()  # type: ignore[assignment]
        return self


class _Branch(nn.Module):
    """One of the two ways to read words: to the last channels, with a ninth of the places."""

    def __init__(self, shape: LiteShape, letters: int) -> None:
        """Draw weights for words of so many letters: six bases, or two codons."""
        super().__init__()
        first, last = shape.channels
        kernel, padding = (1, shape.kernel), (0, shape.kernel // 2)
        self.words = _WordTable(letters, shape.word_width)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, kernel, padding=padding, groups=shape.groups, bias=False)
            for before, after in ((shape.word_width, first), (first, last))
        )
        self.norms = nn.ModuleList(map(nn.BatchNorm2d, shape.channels))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """int64 ``[rows, n]`` to ``[rows, places, channels]``."""
        count = words.shape[1] // POOLED * POOLED
        groups = words[:, :count].reshape(-1, POOLED)
        x = F.embedding_bag(groups, self.words(), mode="mean")
        # Convolutions are fastest with the channels last, as the words are.
        x = x.view(len(words), 1, -1, x.shape[1]).permute(0, 3, 1, 2)
        for number, convolution in enumerate(self.convolutions):
            if number:
                x = F.avg_pool2d(x, (1, POOLED), ceil_mode=True)
            x = F.relu(self.norms[number](convolution(x)), inplace=True)
        return x.squeeze(2).transpose(1, 2)


class _FusedBranch(nn.Module):
    """What a trained branch computes, with less to compute for each chunk.

    The first convolution is linear in its words, so a table has the products of every word, in
    fp16.
    """

    products: torch.Tensor

    def __init__(self, branch: _Branch) -> None:
        super().__init__()
        fused = []
        for layer, norm in zip(branch.convolutions, branch.norms, strict=True):
            assert isinstance(layer, nn.Conv2d)
            assert isinstance(norm, nn.BatchNorm2d)
            fused.append(fuse_conv_bn_eval(layer, norm))
        first, second = fused
        assert first.bias is not None
        self.taps = first.kernel_size[1]
        # [groups, channels after, channels before, taps]
        weight = first.weight.reshape(
            first.groups, -1, first.in_channels // first.groups, self.taps
        )
        words = branch.words().unflatten(1, (first.groups, -1))
        products = torch.einsum("wgi,goit->twgo", words, weight).flatten(2) / POOLED
        products[self.taps // 2] += first.bias / POOLED
        self.register_buffer("products", products.flatten(0, 1).half())
        second.weight.data = second.weight.contiguous(memory_format=torch.channels_last)
        self.second = second

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """int64 ``[rows, n]`` to float32 ``[rows, places, channels]``."""
        groups = words[:, : words.shape[1] // POOLED * POOLED].reshape(len(words), -1, POOLED)
        # The products of unknown words are 0, as those beyond both ends.
        ends = self.taps // 2
        seen = F.pad(groups, (0, 0, ends, ends), value=WORDS).unfold(1, self.taps, 1)
        seen = seen + (WORDS + 1) * torch.arange(self.taps)
        x = F.embedding_bag(seen.reshape(-1, POOLED * self.taps), self.products, mode="sum")
        x = F.relu(x.float(), inplace=True).view(len(words), 1, -1, x.shape[1])
        x = F.avg_pool2d(x.permute(0, 3, 1, 2), (1, POOLED), ceil_mode=True)
        return F.relu(self.second(x), inplace=True).squeeze(2).transpose(1, 2)


class _WordTable(nn.Module):
    """A vector per word, made of a vector per letter and place in the word: few weights."""

    letters: torch.Tensor

    def __init__(self, letters: int, width: int) -> None:
        super().__init__()
        alphabet = round(WORDS ** (1 / letters))
        self.vectors = Embedding(letters * alphabet, width)
        if not self.vectors.weight.is_meta:
            nn.init.normal_(self.vectors.weight, std=letters**-0.5)
        self.norm = nn.BatchNorm1d(width)
        digits = np.stack(np.unravel_index(np.arange(WORDS), (alphabet,) * letters), axis=1)
        rows = torch.from_numpy(digits + alphabet * np.arange(letters))
        self.register_buffer("letters", rows, persistent=False)

    def forward(self) -> torch.Tensor:
        """Return float32 ``[WORDS + 1, width]``; the last row is that of unknown words."""
        table = self.norm(F.relu(self.vectors(self.letters).sum(dim=1)))
        return torch.cat([table, table.new_zeros(1, table.shape[1])])


# --- the encoder and its file --------------------------------------------------------------------

BATCH_BASES = 8_000  # their activations fill 10 MB
SCHEMA = 2  # 1: another network, before November 2026
_KEY = "virnucpro_lite"


class LiteEncoder:
    """A network on its device, called on chunks of any lengths."""

    host_wait_seconds = 0.0

    def __init__(self, network: LiteNetwork, device: torch.device, precision: str) -> None:
        self.dim = network.shape.dim
        self._device = device
        self._dtype = torch_dtype(precision)
        if (device.type, self._dtype) == ("cpu", torch.float32):
            with one_thread():  # sums of tables would depend on the number of threads
                network = network.fused()
        self._network = network.to(device)
        self._batch_bases = BATCH_BASES
        self._threads = CoreThreads()
        if device.type == "cpu":
            keep_freed_memory()
        torch.backends.cudnn.allow_tf32 = False  # fp32 as on the CPU: its default is True

    def encode(self, sequences: Sequence[str], report: ReportProgress) -> torch.Tensor:
        """float32 ``[n, dim]`` on the CPU. A token is a base; batches are of one length."""
        out = torch.empty(len(sequences), self.dim)
        batches = []
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        for length, group in groupby(order, key=lambda i: len(sequences[i])):
            rows = list(group)
            size = max(1, self._batch_bases // max(length, 1))
            batches += [rows[start : start + size] for start in range(0, len(rows), size)]
        with closing(
            self._threads.map(lambda batch: self._forward([sequences[i] for i in batch]), batches)
        ) as computed:
            for batch, embedded in computed:
                out[batch] = embedded
                report(len(batch), sum(len(sequences[i]) for i in batch))
        return out

    def facts(self) -> Mapping[str, Json]:
        """Return the batch budget, which is the same on every device."""
        return {"budget": self._batch_bases, "unit": "bases", "found": "default"}

    def shrink(self) -> bool:
        """Halve the batches; False where they already are of one chunk."""
        smaller = self._batch_bases > SHORTEST_WHOLE
        self._batch_bases = max(SHORTEST_WHOLE, self._batch_bases // 2)
        return smaller

    def _forward(self, texts: list[str]) -> torch.Tensor:
        # The pipeline sends no shorter chunk, but a measurement of the encoder may.
        texts = [text.ljust(SHORTEST_WHOLE, "N") for text in texts]
        kind, half = self._device.type, self._dtype != torch.float32
        with torch.inference_mode(), torch.autocast(kind, self._dtype, enabled=half):
            bases = torch.from_numpy(base_numbers(texts)).to(self._device).long()
            rows: torch.Tensor = self._network(bases)
        return rows.float().cpu()


def lite_to_bytes(network: LiteNetwork, extra: Mapping[str, Json]) -> bytes:
    """Return an encoder as a file, the same for the same arguments; ``extra`` is kept in it."""
    tensors = {
        name: (value.half() if value.ndim > 1 else value.float()).contiguous()
        for name, value in network.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    metadata = {"schema": SCHEMA, "shape": asdict(network.shape), "extra": dict(extra)}
    return save(tensors, {_KEY: json.dumps(metadata, sort_keys=True)})


def read_lite(path: Path) -> LiteNetwork:
    """Read an encoder. Raises ModelError: it cannot be read, is damaged or from a newer program."""
    with torch.device("meta"):  # nothing is allocated that the file does not hold
        network = LiteNetwork(_shape(path))
    load_weights(network, read_safetensors(path), path)
    return network


def _shape(path: Path) -> LiteShape:
    """Return what a lite file says of its network."""
    metadata = as_type(read_metadata(path, _KEY), dict[str, Any], path)
    if metadata.get("schema") != SCHEMA:
        raise ModelError(f"{path} is of another schema than {SCHEMA}: train it again, or update")
    return as_type(metadata.get("shape"), LiteShape, path)


# --- the family ------------------------------------------------------------------------------


PACKAGED = Path(__file__).parents[1] / "data/lite_encoder.safetensors"  # of model type ``lite``


def open_lite(source: EncoderSource, options: OpenOptions) -> LiteEncoder:
    """Load the weights onto the device. Raises ModelError where the file is damaged."""
    network = read_lite(source.weights)
    return LiteEncoder(network, torch.device(options.device), options.precision)


LITE = EncoderFamily(
    name="lite",
    title="lite",
    molecule="nucleotide",
    reading="whole chunks",
    alphabet=BASES,
    open=open_lite,
    width=lambda path: _shape(path).dim,
    recognises=lambda path: path.suffix == ".safetensors" and read_metadata(path, _KEY) is not None,
    packaged=PACKAGED,
    # Too small to gain from 8 bits.
    precisions=tuple(name for name, row in PRECISIONS.items() if row.linear_layers == "cast"),
)
