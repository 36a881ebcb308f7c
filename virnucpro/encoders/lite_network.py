"""The network of the lite encoder: a chunk, both strands and all six frames, to one embedding.

The same weights read the six series of codons of a chunk, so a chunk and its reverse complement
have nearly the same embedding: the strides of the convolutions begin at the other end, and up to
two bases of an end are in no codon of a series. An attention decides which of the series, and
which places of them, count: where there is a gene, its own frame says more than the other five.
Words of bases are averaged beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

UNKNOWN = 4
"""The number of a letter that is none of A, C, G and T (0 to 3)."""
CODONS = 64
FRAMES = 6

_NUMBERS = np.full(256, UNKNOWN, np.uint8)
_NUMBERS[np.frombuffer(b"ACGTacgt", np.uint8)] = [0, 1, 2, 3] * 2


def base_numbers(sequences: Sequence[str]) -> npt.NDArray[np.uint8]:
    """Return the bases of sequences of one length as numbers 0 to 4: uint8 ``[n, L]``."""
    letters = np.frombuffer("".join(sequences).encode("ascii", "replace"), np.uint8)
    return _NUMBERS[letters].reshape(len(sequences), -1)


@dataclass(frozen=True)
class LiteShape:
    """The sizes of a network.

    The length of words was chosen among 4, 6 and 8 by the AUROC of held-out taxa after 1,000 steps;
    the other defaults by what a CPU computes in the time that is meant for a chunk.

    Attributes:
        codon_width: numbers per embedded codon.
        channels, kernels, strides: of the convolutions over codons, one after the other.
        blocks: residual convolutions after them, with the last of the channels and kernels. They
            see further at little cost, as few places are left.
        heads: of the attention; they share the last channels among them.
        word: bases per word.
        word_width: numbers per embedded word.
        dim: width of an embedding.
    """

    codon_width: int = 32
    channels: tuple[int, ...] = (64, 96, 128, 128)
    kernels: tuple[int, ...] = (7, 7, 5, 5)
    strides: tuple[int, ...] = (1, 2, 2, 2)
    blocks: int = 2
    heads: int = 8
    word: int = 4
    word_width: int = 32
    dim: int = 256

    def __post_init__(self) -> None:
        """Refuse what a damaged file may say (ValueError)."""
        values = asdict(self)
        blocks = values.pop("blocks")
        sizes = [size for value in values.values() for size in np.atleast_1d(value).tolist()]
        layers = {len(self.channels), len(self.kernels), len(self.strides)}
        if not all(isinstance(size, int) and 0 < size <= 4096 for size in sizes):
            raise ValueError("sizes of the network are not between 1 and 4096")
        if not isinstance(blocks, int) or not 0 <= blocks <= 16:
            raise ValueError("the number of residual blocks is not between 0 and 16")
        if blocks and self.kernels[-1] % 2 == 0:
            raise ValueError("residual blocks need an odd kernel")
        if len(layers) != 1 or len(self.channels) > 16 or self.channels[-1] % self.heads:
            raise ValueError("sizes of the network do not fit each other")
        if self.word > 9:
            raise ValueError(f"words of {self.word} bases are too many")


class LiteNetwork(nn.Module):
    """Bases to embeddings. B chunks of L bases; six series of about L / 3 codons each."""

    def __init__(self, shape: LiteShape) -> None:
        super().__init__()
        self.shape = shape
        self.codons = nn.Embedding(CODONS + 1, shape.codon_width)
        inputs = (shape.codon_width, *shape.channels)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, (1, kernel), (1, stride), (0, kernel // 2), bias=False)
            for before, after, kernel, stride in zip(
                inputs, shape.channels, shape.kernels, shape.strides, strict=False
            )
        )
        self.norms = nn.ModuleList(map(nn.BatchNorm2d, shape.channels))
        last, kernel = shape.channels[-1], shape.kernels[-1]
        self.blocks = nn.ModuleList(
            nn.Conv2d(last, last, (1, kernel), padding=(0, kernel // 2), bias=False)
            for _ in range(shape.blocks)
        )
        norms = [nn.BatchNorm2d(last) for _ in range(shape.blocks)]
        for norm in norms:
            nn.init.zeros_(norm.weight)  # a block changes nothing before it has learned something
        self.block_norms = nn.ModuleList(norms)
        self.attention = nn.Linear(last, shape.heads)
        self.words = nn.EmbeddingBag(
            4**shape.word + 1, shape.word_width, mode="mean", padding_idx=4**shape.word
        )
        nn.init.normal_(self.words.weight, std=0.1)
        self.words_norm = nn.BatchNorm1d(shape.word_width)
        self.out = nn.Linear(3 * last + shape.word_width, shape.dim)
        self.out_norm = nn.BatchNorm1d(shape.dim)

    def forward(self, bases: torch.Tensor) -> torch.Tensor:
        """Embed chunks of one length, of at least 30 bases: int64 ``[B, L]`` to ``[B, dim]``."""
        chunks = len(bases)
        complement = torch.where(bases < UNKNOWN, 3 - bases, bases).flip(1)
        strands = torch.stack([bases, complement], dim=1).view(2 * chunks, -1)
        # Convolutions are fastest with the channels last, as the codons are embedded.
        x = self.codons(self._codon_numbers(strands)).transpose(1, 2).unsqueeze(2)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.relu(norm(convolution(x)), inplace=True)  # [6 B, channels, 1, places]
        for convolution, norm in zip(self.blocks, self.block_norms, strict=True):
            x = F.relu(norm(convolution(x)).add_(x), inplace=True)
        x = x.squeeze(2).transpose(1, 2).reshape(chunks, -1, self.shape.channels[-1])
        weights = self.attention(x).float().softmax(dim=1).to(x.dtype)  # [B, 6 places, heads]
        values = x.view(*x.shape[:2], self.shape.heads, -1)
        attended = (weights.unsqueeze(3) * values).sum(dim=1).flatten(1)
        words = self.words_norm(self.words(self._word_numbers(strands).view(chunks, -1)))
        pooled = [attended, x.amax(dim=1), x.mean(dim=1), words]
        merged = self.out(torch.cat([part.float() for part in pooled], dim=1))
        embedding: torch.Tensor = F.relu(self.out_norm(merged.float()))
        return embedding

    def fused(self) -> LiteNetwork:
        """Put the batch norms of a trained network into its other layers, and return it."""
        self.eval()
        for layers, norms in ((self.convolutions, self.norms), (self.blocks, self.block_norms)):
            for number, (layer, norm) in enumerate(zip(layers, norms, strict=True)):
                assert isinstance(layer, nn.Conv2d)
                assert isinstance(norm, nn.BatchNorm2d)
                layers[number] = fuse_conv_bn_eval(layer, norm)
                norms[number] = nn.Identity()
        self.out = fuse_linear_bn_eval(self.out, self.out_norm)
        self.out_norm = nn.Identity()  # type: ignore[assignment]
        return self

    def _codon_numbers(self, strands: torch.Tensor) -> torch.Tensor:
        """Return the codons of three frames per strand: int64 ``[3 strands, L // 3]``."""
        first, second, third = strands[:, :-2], strands[:, 1:-1], strands[:, 2:]
        known = (first < UNKNOWN) & (second < UNKNOWN) & (third < UNKNOWN)
        numbers = torch.where(known, (first * 4 + second) * 4 + third, CODONS)
        count = numbers.shape[1] // 3
        frames = numbers[:, : 3 * count].view(len(strands), count, 3)
        return frames.transpose(1, 2).reshape(-1, count)

    def _word_numbers(self, strands: torch.Tensor) -> torch.Tensor:
        """Return the word that begins at each base: int64 ``[strands, L - word + 1]``."""
        word = self.shape.word
        count = strands.shape[1] - word + 1
        numbers = strands[:, :count].clone()
        known = numbers < UNKNOWN
        for offset in range(1, word):
            letters = strands[:, offset : offset + count]
            known &= letters < UNKNOWN
            numbers = numbers * 4 + letters
        return torch.where(known, numbers, 4**word)
