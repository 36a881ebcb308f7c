"""ESM-2: proteins to the mean of their residues in the last layer.

Lin et al. 2023, https://doi.org/10.1126/science.ade2574. The forward pass is that of fair-esm 2.0
and of ``EsmModel`` in transformers, to about 1e-6 in float32.
Shapes: B sequences, T tokens, D width, H heads, d = D / H.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from virnucpro.contracts import Precision
from virnucpro.encoders.batched import Batch, BatchedEncoder, make_batch
from virnucpro.encoders.batching import bucket_of, by_tokens
from virnucpro.encoders.blocks import attend, attention_kernel, masked_mean, merge_heads
from virnucpro.encoders.budget import Bounds
from virnucpro.encoders.esm2_files import VOCABULARY, Sizes, read_checkpoint, width_of
from virnucpro.encoders.fp8 import quantise
from virnucpro.encoders.linear import Linear, fuses
from virnucpro.encoders.stack import Example, Stack
from virnucpro.encoders.weights import DTYPES, assign, read_json, weight_files

if TYPE_CHECKING:
    from virnucpro.encoders.registry import EncoderSource

CLS, PAD, EOS, UNK = 0, 1, 2, 3
LETTERS = "LAGVSERTIDPKQNFYMHWCXBUZO.-"  # tokens 4..30
# Training masked 15 % of the tokens, 80 % of these by <mask>, and scaled the embeddings for it.
DROPOUT_SCALE = 1 - 0.15 * 0.8
# The original's 2048 at least. At 32,768 tokens the smallest matrix product of the 3B model has
# 0.4 TFLOP: its launch no longer shows. On a CPU 512 are as fast a core as 2048 (35M and 650M, one
# thread), and a span of 250 proteins is 84 batches for its cores instead of 21.
BOUNDS = Bounds("tokens", cpu=512, least=2048, most=32768)
FRAME = 166  # residues of a frame of a full 500 bp chunk
# Computed, not measured: 21,000 frames of the 3B model take some 50 s as it is on an H200, 140 s on
# an A100; a compiled model takes a third less, and compiling about 20 s.
WORTH = 2e16
EXAMPLE = (13, FRAME + 2)  # sequences and tokens of what a block is compiled with: unlike numbers

_TABLE = np.full(256, UNK, np.int64)
_TABLE[np.frombuffer(LETTERS.encode(), np.uint8)] = 4 + np.arange(len(LETTERS))

Rotary = tuple[torch.Tensor, torch.Tensor]


def recognises(path: Path) -> bool:
    """Whether ``path`` may be an ESM-2 model: a checkpoint, or a folder whose config says so."""
    if path.is_file():
        return path.suffix != ".safetensors"  # that is how fair-esm never stored them
    return read_json(path / "config.json").get("model_type") == "esm"


def files(path: Path) -> tuple[Path, ...]:
    """The files that decide the result."""
    return (path,) if path.is_file() else (path / "config.json", *weight_files(path))


def width(path: Path) -> int:
    """Embedding width; raises ModelError where ``path`` is no ESM-2 model."""
    return width_of(path)


def open_encoder(
    source: EncoderSource, device: str, precision: Precision, *, budget: int | None, truncation: int
) -> Esm2Encoder:
    """Load the weights of ``source`` onto ``device``. ``budget`` is tokens a batch; None finds it.

    Raises:
        ModelError: missing, damaged or not matching weights.
    """
    assert source.path is not None
    checkpoint = read_checkpoint(source.path)
    where, dtype = torch.device(device), DTYPES[precision]
    with torch.device("meta"):
        model = Esm2(checkpoint.sizes)
    assign(model, checkpoint.names, checkpoint.weights, where, dtype)
    if precision == "fp8":
        quantise(model.blocks)
    rotary = rotary_tables(checkpoint.inv_freq, truncation + 2, where)
    return Esm2Encoder(model, rotary, where, budget, truncation)


def rotary_tables(inv_freq: torch.Tensor, length: int, device: torch.device) -> Rotary:
    """Cosine and sine of position x frequency; float32 ``[length, d/2]`` each.

    The angles are rounded to float32 as in fair-esm, but torch's own ``cos`` is not used: its first
    call in a process may silently lose half of its digits on a CPU with several threads
    (pytorch/pytorch#188792; 3 of 60 processes here were wrong by 1.5e-4).
    """
    angles = torch.outer(torch.arange(length, dtype=torch.float32), inv_freq.cpu()).numpy()
    exact = angles.astype(np.float64)
    cos, sin = np.cos(exact).astype(np.float32), np.sin(exact).astype(np.float32)
    return torch.from_numpy(cos).to(device), torch.from_numpy(sin).to(device)


def turns(rotary: Rotary, dtype: torch.dtype) -> torch.Tensor:
    """The tables as a matrix a position, ``[T, d, d]``: ``x[t] @ turns[t]`` is ``x[t]`` turned."""
    cos, sin = map(torch.diag_embed, rotary)  # [T, d/2, d/2]
    upper, lower = torch.cat((cos, sin), dim=-1), torch.cat((-sin, cos), dim=-1)
    return torch.cat((upper, lower), dim=-2).to(dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor | None) -> torch.Tensor:
    """Rotary positions, halves paired; ``[B, T, ..., d]``. In float32, whatever ``x`` is.

    ``cos`` and ``sin`` have as many dimensions as ``x``: ``[B or 1, T, ..., d/2]``. Without
    ``sin``, ``cos`` is what :func:`turns` makes, in the type of ``x``.
    """
    if sin is None:
        return _turned(x, cos)
    first, second = x.float().chunk(2, dim=-1)
    halves = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat([half.to(x.dtype) for half in halves], dim=-1)


class LayerNorm(nn.LayerNorm):
    """Compiled, mean and variance are taken one after the other from a row that is in the cache.

    A compiler takes both at once where a row is long (Welford): half as many instructions again,
    and a GPU waits for these, not for its memory.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., D]`` to the same."""
        if not torch.compiler.is_compiling():
            return super().forward(x)
        row = x.float()
        centred = row - row.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps)
        return (centred * scale * self.weight + self.bias).to(x.dtype)


def _turned(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """A product of all heads a position.

    Half of each matrix is zeros, and still a CPU needs half of the time or less: the rows of
    ``d/2`` numbers that the formula works on are too short for it.
    """
    rows = x.flatten(2, -2)  # [B, T, N, d]
    b, t, n, d = rows.shape
    if x.dtype == torch.bfloat16:  # oneDNN's product of q and k likes each head in one piece
        turned = x.new_empty(b, n, t, d).transpose(1, 2)
    else:
        turned = x.new_empty(b, t, n, d)
    for i in range(b):
        torch.bmm(rows[i], turn, out=turned[i])
    return turned.view(b, t, *x.shape[2:])


class Block(nn.Module):
    """Pre-LN transformer block."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.attention_norm = LayerNorm(width, sizes.eps)
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width)
        self.mlp_norm = LayerNorm(width, sizes.eps)
        self.fc1 = Linear(width, sizes.feed_forward)
        self.fc2 = Linear(sizes.feed_forward, width)

    def forward(
        self,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor | None,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """``[B, T, D]`` to ``[B, T, D]``; ``mask`` is true for real keys, ``[B, 1, 1, T]``.

        ``cos`` and ``sin`` are float32 ``[B or 1, T, 1, 1, d/2]``, or as :func:`rotate` says.
        """
        b, t, _ = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(b, t, 3, self.heads, -1)
        q, k = rotate(qkv[:, :, :2], cos, sin).unbind(2)  # [B, T, H, d]
        v = qkv[:, :, 2]
        attended = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask)
        x = self.out.added(merge_heads(attended), x)
        hidden = self.fc1.gelu(self.mlp_norm(x))  # [B, T, 4D]
        return self.fc2.added(hidden, x)


class Esm2(nn.Module):
    """Tokens to the states of the last layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.scale = DROPOUT_SCALE if sizes.token_dropout else 1.0
        self.embed = nn.Embedding(VOCABULARY, sizes.width)
        self.blocks = Stack(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width, sizes.eps)

    def forward(
        self, tokens: torch.Tensor, rotary: Rotary, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """int64 ``[B, T]`` to ``[B, T, D]`` in the precision of the weights.

        ``rotary`` is float32 ``[T, d/2]`` twice, ``mask`` true for real keys, ``[B, 1, 1, T]``.
        """
        x = self.embed(tokens) * self.scale
        normed: torch.Tensor = self.norm(self.blocks(x, *self._turning(x, rotary), mask))
        return normed

    def _turning(self, x: torch.Tensor, rotary: Rotary) -> tuple[torch.Tensor, torch.Tensor | None]:
        """``cos`` and ``sin`` of the blocks."""
        if fuses(x) and not self.blocks.fused:
            return turns(rotary, x.dtype), None
        cos, sin = (table[None, :, None, None] for table in rotary)  # [1, T, 1, 1, d/2]
        if self.blocks.fused:  # a row of its own for each token: kernels then need no division
            return cos.repeat(len(x), 1, 1, 1, 1), sin.repeat(len(x), 1, 1, 1, 1)
        return cos, sin


class Esm2Encoder(BatchedEncoder):
    """ESM-2 on a device. An embedding is the mean over the first ``truncation`` residues."""

    bounds = BOUNDS
    worth = WORTH
    typical = FRAME + 2

    def __init__(
        self,
        model: Esm2,
        rotary: Rotary,
        device: torch.device,
        budget: int | None,
        truncation: int,
    ) -> None:
        self._model = model
        self._rotary = rotary
        self._truncation = truncation
        super().__init__(device, budget, model.blocks)

    @property
    def dim(self) -> int:
        """Width of the model."""
        return self._model.embed.embedding_dim

    @property
    def network(self) -> Esm2:
        """Tokens to the states of the last layer."""
        return self._model

    def batches(self, sequences: Sequence[str]) -> Iterator[Batch]:
        """Equal lengths together, longest first.

        Raises:
            ValueError: an empty sequence, which has no mean.
        """
        residues = [min(len(sequence), self._truncation) for sequence in sequences]
        if 0 in residues:
            raise ValueError(f"protein {residues.index(0) + 1} of {len(residues)} is empty")
        lengths = [n + 2 for n in residues]
        for indices in by_tokens(lengths, self.budget.amount):
            yield self._batch(indices, [sequences[i][: self._truncation] for i in indices])

    def _batch(self, indices: Sequence[int], proteins: Sequence[str]) -> Batch:
        """Tokens int64 ``[B, T]``; where lengths differ also which are real and which residues."""
        lengths = np.array([len(protein) for protein in proteins])
        total = int(lengths.sum()) + 2 * len(proteins)
        if lengths.min() == lengths.max():
            return make_batch(indices, total, tokenise(proteins))
        tokens = tokenise(proteins, self.step)
        position = np.arange(tokens.shape[1])
        real = position < lengths[:, None] + 2  # with cls and eos
        inner = (position > 0) & (position <= lengths[:, None])
        return make_batch(indices, total, tokens, real, inner)

    def sample(self, amount: int) -> Batch:
        """Full frames of 500 bp chunks."""
        proteins = ["A" * min(FRAME, self._truncation)] * max(1, amount // (FRAME + 2))
        return self._batch(range(len(proteins)), proteins)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """One batch: tokens, with two masks where they are padded, to float32 ``[B, D]``."""
        tokens, *masks = inputs
        t = tokens.shape[1]
        rotary = (self._rotary[0][:t], self._rotary[1][:t])
        if not masks:
            x: torch.Tensor = self._model(tokens, rotary, None)  # [B, T, D]
            return x[:, 1:-1].mean(dim=1, dtype=torch.float32)
        real, inner = masks
        return masked_mean(self._model(tokens, rotary, real[:, None, None, :]), inner)

    def examples(self) -> list[Example]:
        """Batches of equal lengths, and padded ones."""
        b, t = EXAMPLE
        table = self._rotary[0].new_zeros(b, t, 1, 1, self._rotary[0].shape[-1])
        inputs = (self.state(b, t), table + 1, table)
        mask = torch.ones(b, 1, 1, t, dtype=torch.bool, device=self.device)
        free = ((0, 1), (0, 1), (0, 1), (0, 3))
        return [Example((*inputs, None), free), Example((*inputs, mask), free)]

    def attention(self) -> str:
        """Of equal lengths: without a mask."""
        heads, weight = self._model.heads, self._model.embed.weight
        return attention_kernel(weight.new_empty(1, heads, FRAME + 2, self.dim // heads), None)


def tokenise(proteins: Sequence[str], step: int = 1) -> npt.NDArray[np.int64]:
    """``<cls>`` residues ``<eos>`` padding: ``[B, longest + 2]``. Unknown letters are ``<unk>``.

    The number of columns is the next multiple of ``step``.
    """
    columns = bucket_of(max(map(len, proteins)) + 2, step)
    tokens = np.full((len(proteins), columns), PAD, np.int64)
    tokens[:, 0] = CLS
    for row, protein in zip(tokens, proteins, strict=True):
        letters = np.frombuffer(protein.encode("ascii", "replace"), np.uint8)
        row[1 : len(letters) + 1] = _TABLE[letters]
        row[len(letters) + 1] = EOS
    return tokens
