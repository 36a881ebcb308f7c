"""DNABERT-S: nucleotide sequences to the mean of their tokens in the last layer.

Zhou et al. 2024, https://arxiv.org/abs/2402.08777: BERT with ALiBi (https://arxiv.org/abs/2108.12409)
and a gated MLP. The code that comes with the released weights does not run with current
transformers and would have to be trusted; this needs the weights, the tokenizer and the sizes.
Shapes: B sequences, T tokens, D width, H heads, d = D / H.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn

from virnucpro.compute.arithmetic import prepare_blocks, torch_dtype
from virnucpro.compute.attention import (
    attend,
    attention_kernel,
    masked_mean,
    merge_heads,
    split_heads,
)
from virnucpro.compute.batching import bucket_of, by_buckets
from virnucpro.compute.budget import Bounds
from virnucpro.compute.compiled import Example, Stack
from virnucpro.compute.linear import GatedLinear, Linear
from virnucpro.encoders.batched import STEP, Batch, BatchedEncoder, make_batch
from virnucpro.encoders.dnabert_files import Sizes, read_sizes, read_tokenizer, stored_names
from virnucpro.encoders.weights import (
    assign,
    read_folder,
    read_json,
    weight_files,
)

if TYPE_CHECKING:
    from virnucpro.encoders.registry import EncoderSource

# 256 sequences are some 26,000 tokens, and more than one bucket of a slice holds.
BOUNDS = Bounds("sequences", cpu=16, least=16, most=256)
SLICE = 512  # sequences tokenised together; while one is computed, the next one is tokenised
FIRST = 128  # of the first slice, for which a GPU has to wait
FRAME_TOKENS = 120  # the longest bucket of frames of 500 bp chunks, which have 83-117 tokens
# Computed, not measured: 90,000 frames take some 25 s as it is on an H200, compiling about 10 s.
WORTH = 2e15
EXAMPLE = (19, 104)  # sequences and tokens of what a block is compiled with: unlike numbers
BIAS_ELEMENTS = 1 << 26  # of one batch's attention bias: 128 MiB in 16 bit


def recognises(path: Path) -> bool:
    """Whether the folder's configuration is of a BERT with ALiBi."""
    return path.is_dir() and "alibi_starting_size" in read_json(path / "config.json")


def files(path: Path) -> tuple[Path, ...]:
    """The files that decide the result."""
    return (path / "config.json", path / "tokenizer.json", *weight_files(path))


def width(path: Path) -> int:
    """Embedding width. Raises ModelError where ``config.json`` is incomplete."""
    return read_sizes(path).width


def open_encoder(
    source: EncoderSource, device: str, precision: str, *, budget: int | None, truncation: int
) -> DnabertEncoder:
    """Load ``source`` onto ``device``. ``budget`` is sequences a batch; None finds it.

    Nothing is truncated.

    Raises:
        ModelError: missing, damaged or not matching weights or tokenizer.
    """
    del truncation
    assert source.path is not None
    sizes = read_sizes(source.path)
    weights = read_folder(source.path).renamed(r"bert\.")
    weights.refuse_more_layers("encoder.layer", sizes.layers)
    where = torch.device(device)
    with torch.device("meta"):
        model = Dnabert(sizes)
    assign(model, stored_names(model.state_dict()), weights, where, torch_dtype(precision))
    prepare_blocks(model.blocks, precision)
    tokenizer = read_tokenizer(source.path / "tokenizer.json", sizes.vocabulary)
    return DnabertEncoder(model, tokenizer, sizes.heads, where, budget)


def alibi_slopes(heads: int) -> list[float]:
    """Slopes of ``heads`` heads, as Press et al. define them."""
    power = 1 << (heads.bit_length() - 1)  # the greatest power of two <= heads
    start = 2.0 ** -(2.0 ** -(math.log2(power) - 3))
    slopes = [start ** (k + 1) for k in range(power)]
    return slopes if power == heads else slopes + alibi_slopes(2 * power)[::2][: heads - power]


def alibi_bias(heads: int, length: int) -> torch.Tensor:
    """``-slope * |i - j|``; float32 ``[H, length, length]``."""
    position = torch.arange(length, dtype=torch.float32)
    distance = (position[:, None] - position[None, :]).abs()
    return -torch.tensor(alibi_slopes(heads))[:, None, None] * distance


class Block(nn.Module):
    """Post-LN transformer block with a gated MLP."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, sizes.eps)
        self.gated = GatedLinear(width, sizes.feed_forward)
        self.wo = Linear(sizes.feed_forward, width)
        self.mlp_norm = nn.LayerNorm(width, sizes.eps)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """``[B, T, D]`` to the same; ``bias``, added to the scores, is ``[B, H, T, T]``."""
        q, k, v = split_heads(self.qkv(x), self.heads)  # [B, H, T, d]
        attended = attend(q, k, v, bias)  # [B, H, T, d]
        x = self.attention_norm(self.out.added(merge_heads(attended), x))
        hidden = self.gated(x)  # [B, T, I]
        normed: torch.Tensor = self.mlp_norm(self.wo.added(hidden, x))
        return normed


class Dnabert(nn.Module):
    """Tokens to the states of the last layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embed = nn.Embedding(sizes.vocabulary, sizes.width)
        self.kind = nn.Embedding(sizes.kinds, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, sizes.eps)
        self.blocks = Stack(Block(sizes) for _ in range(sizes.layers))

    def forward(self, tokens: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """int64 ``[B, T]`` to ``[B, T, D]`` in the precision of the weights."""
        x: torch.Tensor = self.blocks(self.norm(self.embed(tokens) + self.kind.weight[0]), bias)
        return x


class DnabertEncoder(BatchedEncoder):
    """DNABERT-S on a device. An embedding is the mean over all tokens, ``[CLS]`` and ``[SEP]`` too.

    A letter outside ACGT becomes ``[UNK]``, as in the original.
    """

    bounds = BOUNDS
    worth = WORTH
    typical = EXAMPLE[1]

    def __init__(
        self,
        model: Dnabert,
        tokenizer: Tokenizer,
        heads: int,
        device: torch.device,
        budget: int | None,
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._heads = heads
        self._bias = torch.empty(heads, 0, 0)
        super().__init__(device, budget, model.blocks)

    @property
    def dim(self) -> int:
        """Width of the model."""
        return self._model.embed.embedding_dim

    @property
    def network(self) -> Dnabert:
        """Tokens to the states of the last layer."""
        return self._model

    def batches(self, sequences: Sequence[str]) -> Iterator[Batch]:
        """Slices of the longest first, each in buckets of its token lengths.

        Buckets over all sequences would be fuller, but the first batch would have to wait until
        the last sequence is tokenised.
        """
        order = sorted(range(len(sequences)), key=lambda i: (-len(sequences[i]), i))
        first = FIRST if self.ahead else SLICE
        for start, stop in pairwise([0, *range(first, len(order), SLICE), len(order)]):
            part = order[start:stop]
            encoded = self._tokenizer.encode_batch([sequences[i] for i in part])
            ids = [encoding.ids for encoding in encoded]
            lengths = [len(row) for row in ids]
            area = BIAS_ELEMENTS // self._heads
            for rows in by_buckets(lengths, self.budget.amount, step=STEP, area=area):
                yield _batch([part[row] for row in rows], [ids[row] for row in rows])

    def sample(self, amount: int) -> Batch:
        """The longest frames of 500 bp chunks."""
        return _batch(range(amount), [[0] * FRAME_TOKENS] * amount)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """One batch: tokens and which are real, ``[B, T]``, to float32 ``[B, D]``."""
        tokens, real = inputs
        bias = self._bias_of(tokens.shape[1])[None].masked_fill(~real[:, None, None, :], -math.inf)
        return masked_mean(self._model(tokens, bias), real)

    def examples(self) -> list[Example]:
        """Any batch: there always is a bias."""
        b, t = EXAMPLE
        bias = self._bias_of(t).repeat(b, 1, 1, 1)
        return [Example((self.state(b, t), bias), ((0, 1), (0, 2, 3)))]

    def attention(self) -> str:
        """With a bias in place of a mask."""
        bias = self._bias_of(FRAME_TOKENS)[None]
        q = bias.new_empty(1, self._heads, FRAME_TOKENS, self.dim // self._heads)
        return attention_kernel(q, bias)

    def _bias_of(self, length: int) -> torch.Tensor:
        """ALiBi ``[H, length, length]``: a corner of the largest made so far."""
        bias = self._bias  # another thread may put a smaller one in its place meanwhile
        if length > bias.shape[-1]:
            dtype = self._model.embed.weight.dtype
            self._bias = bias = alibi_bias(self._heads, length).to(self.device, dtype)
        return bias[:, :length, :length]


def _batch(indices: Sequence[int], ids: Sequence[Sequence[int]]) -> Batch:
    """Token ids of one bucket: int64 ``[B, T]``, and which are real."""
    lengths = np.array([len(row) for row in ids])
    t = bucket_of(int(lengths.max()), STEP)
    padded = np.zeros((len(ids), t), np.int64)
    for row, values in zip(padded, ids, strict=True):
        row[: len(values)] = values
    # By length, never by id: the pad id of config.json is [UNK] to the tokenizer.
    return make_batch(indices, int(lengths.sum()), padded, np.arange(t) < lengths[:, None])
