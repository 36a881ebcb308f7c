"""ESM-2: proteins to the mean of their residues in the last layer.

Lin et al. 2023, https://doi.org/10.1126/science.ade2574.
Shapes: B sequences, T tokens, D width, H heads, d = D / H.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.compute.arithmetic import prepare_blocks, torch_dtype
from virnucpro.compute.attention import attention_kernel, masked_mean
from virnucpro.compute.batching import bucket_of, by_tokens
from virnucpro.compute.budget import Bounds
from virnucpro.compute.compiled import Example
from virnucpro.encoders.batched import Batch, BatchedEncoder, make_batch
from virnucpro.encoders.esm2_files import read_checkpoint, width_of
from virnucpro.encoders.esm2_network import Esm2, Rotary, rotary_tables
from virnucpro.encoders.weights import assign, read_json, weight_files

if TYPE_CHECKING:
    from virnucpro.encoders.registry import EncoderSource

CLS, PAD, EOS, UNK = 0, 1, 2, 3
LETTERS = "LAGVSERTIDPKQNFYMHWCXBUZO.-"  # tokens 4..30
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
    source: EncoderSource, device: str, precision: str, *, budget: int | None, truncation: int
) -> Esm2Encoder:
    """Load the weights of ``source`` onto ``device``. ``budget`` is tokens a batch; None finds it.

    Raises:
        ModelError: missing, damaged or not matching weights.
    """
    assert source.path is not None
    checkpoint = read_checkpoint(source.path)
    where, dtype = torch.device(device), torch_dtype(precision)
    with torch.device("meta"):
        model = Esm2(checkpoint.sizes)
    assign(model, checkpoint.names, checkpoint.weights, where, dtype)
    prepare_blocks(model.blocks, precision)
    rotary = rotary_tables(checkpoint.inv_freq, truncation + 2, where)
    return Esm2Encoder(model, rotary, where, budget, truncation)


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
        b, t = EXAMPLE[0], min(EXAMPLE[1], len(self._rotary[0]))
        tables = (table[None, :t, None, None].repeat(b, 1, 1, 1, 1) for table in self._rotary)
        inputs = (self.state(b, t), *tables)
        mask = torch.ones(b, 1, 1, t, dtype=torch.bool, device=self.device)
        mask[:, :, :, t // 2 :] = False
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
