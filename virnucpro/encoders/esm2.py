"""ESM-2: proteins to the mean of their residues in the last layer.

Lin et al. 2023, https://doi.org/10.1126/science.ade2574. The forward pass is that of fair-esm 2.0
and of ``EsmModel`` in transformers, to about 1e-6 in float32. In this order: the network, its
tokens and batches, the two layouts of its weights, and the family.
Shapes: B sequences, T tokens, D width, H heads, d = D / H, I width of the feed-forward layer.
"""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from virnucpro.compute.budget import Bounds, by_tokens, padded_length
from virnucpro.compute.compiled import Example, Network, Stack
from virnucpro.compute.layers import (
    Linear,
    attend,
    attention_kernel,
    fuses,
    masked_mean,
    merge_heads,
    prepare_blocks,
    torch_dtype,
)
from virnucpro.contracts import ReportProgress
from virnucpro.encoders.batched import Batch, BatchedEncoder, example_sequences
from virnucpro.encoders.family import (
    LETTERS_PER_FRAME,
    RESIDUES,
    EncoderFamily,
    EncoderSource,
    OpenOptions,
)
from virnucpro.encoders.weights import (
    Embedding,
    Tensors,
    TransformerSizes,
    as_type,
    load_weights,
    read_folder,
    read_json,
    read_pickle,
    read_sizes,
    renamed,
    stored_names,
    weight_files,
)
from virnucpro.errors import ModelError

VOCABULARY = 33  # <cls> <pad> <eos> <unk>, 27 letters, a null and <mask>
# Training masked 15 % of the tokens, 80 % of these by <mask>, and scaled the embeddings for it.
DROPOUT_SCALE = 1 - 0.15 * 0.8
_ROTARY_BASE = 10000.0  # esm.rotary_embedding.RotaryEmbedding

Rotary = tuple[torch.Tensor, torch.Tensor]


class Esm2Sizes(TransformerSizes, frozen=True):
    """What an ESM-2 is built from."""

    token_dropout: bool = False


def rotary_frequencies(pairs: int) -> torch.Tensor:
    """Return the frequencies of a model that stores none: float32 ``[pairs]``, d / 2 of them."""
    exponents = torch.arange(0, 2 * pairs, 2, dtype=torch.float32) / (2 * pairs)
    return 1.0 / _ROTARY_BASE**exponents


def rotary_tables(inv_freq: torch.Tensor, length: int, device: torch.device) -> Rotary:
    """Return cosine and sine of position x frequency; float32 ``[length, d/2]`` each.

    The angles are rounded to float32 as in fair-esm, but torch's own ``cos`` is not used: its first
    call in a process may silently lose half of its digits on a CPU with several threads
    (pytorch/pytorch#188792; 3 of 60 processes here were wrong by 1.5e-4).
    """
    angles = torch.outer(torch.arange(length, dtype=torch.float32), inv_freq.cpu()).numpy()
    exact = angles.astype(np.float64)  # [length, d/2]
    cos, sin = np.cos(exact).astype(np.float32), np.sin(exact).astype(np.float32)
    return torch.from_numpy(cos).to(device), torch.from_numpy(sin).to(device)


def rotation_matrices(rotary: Rotary, dtype: torch.dtype) -> torch.Tensor:
    """Return a matrix per position, ``[T, d, d]``: ``x[t] @ matrices[t]`` is ``x[t]`` rotated."""
    cos, sin = map(torch.diag_embed, rotary)  # [T, d/2, d/2]
    upper, lower = torch.cat((cos, sin), dim=-1), torch.cat((-sin, cos), dim=-1)  # [T, d/2, d]
    return torch.cat((upper, lower), dim=-2).to(dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor | None) -> torch.Tensor:
    """Apply rotary positions to ``[B, T, ..., d]``, halves paired; in float32 for any type of x.

    ``cos`` and ``sin`` have as many dimensions as ``x``: ``[B or 1, T, ..., d/2]``. Without
    ``sin``, ``cos`` is what :func:`rotation_matrices` makes, in the type of ``x``.
    """
    if sin is None:
        # One product per position, of all heads together. Half of each matrix is zeros, and still
        # a CPU needs half of the time: the formula's rows of d/2 numbers are too short for it.
        rows = x.flatten(2, -2)  # [B, T, N, d]
        b, t, n, d = rows.shape
        if x.dtype == torch.bfloat16:  # oneDNN's product of q and k likes each head in one piece
            rotated = x.new_empty(b, n, t, d).transpose(1, 2)
        else:
            rotated = x.new_empty(b, t, n, d)
        for i in range(b):
            torch.bmm(rows[i], cos, out=rotated[i])
        return rotated.view(b, t, *x.shape[2:])
    first, second = x.float().chunk(2, dim=-1)  # [B, T, ..., d/2]
    halves = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat([half.to(x.dtype) for half in halves], dim=-1)


class TwoPassLayerNorm(nn.LayerNorm):
    """A layer norm whose compiled form takes the mean and then the variance of a row.

    The row is in the cache the second time. A compiler takes both at once where a row is long
    (Welford): half as many instructions again, and a GPU waits for these, not for its memory.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., D]`` to the same."""
        if not torch.compiler.is_compiling():
            return super().forward(x)
        row = x.float()
        centred = row - row.mean(-1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps)
        return (centred * scale * self.weight + self.bias).to(x.dtype)


class Esm2Block(nn.Module):
    """A transformer block with layer norms before attention and feed-forward layer."""

    def __init__(self, sizes: Esm2Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.attention_norm = TwoPassLayerNorm(width, sizes.eps)
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width)
        self.mlp_norm = TwoPassLayerNorm(width, sizes.eps)
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
        qkv = self.qkv(self.attention_norm(x)).view(b, t, 3, self.heads, -1)  # [B, T, 3, H, d]
        q, k = rotate(qkv[:, :, :2], cos, sin).unbind(2)  # [B, T, H, d]
        v = qkv[:, :, 2]  # [B, T, H, d]
        attended = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask)
        x = self.out.added(merge_heads(attended), x)  # [B, T, D]
        return self.fc1.gelu_into(self.fc2, self.mlp_norm(x), x)  # [B, T, I] between the two


class Esm2(Network):
    """Tokens to the states of the last layer."""

    def __init__(self, sizes: Esm2Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.scale = DROPOUT_SCALE if sizes.token_dropout else 1.0
        self.embed = Embedding(VOCABULARY, sizes.width)
        self.blocks = Stack(Esm2Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width, sizes.eps)

    def forward(
        self, tokens: torch.Tensor, rotary: Rotary, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """int64 ``[B, T]`` to ``[B, T, D]`` in the precision of the weights.

        ``rotary`` is float32 ``[T, d/2]`` twice, ``mask`` true for real keys, ``[B, 1, 1, T]``.
        """
        x = self.embed(tokens) * self.scale  # [B, T, D]
        tables: list[torch.Tensor | None]
        tables = [table[None, :, None, None] for table in rotary]  # [1, T, 1, 1, d/2]
        if self.blocks.fused:  # a row of its own for each token: kernels then need no division
            tables = [table[None, :, None, None].repeat(len(x), 1, 1, 1, 1) for table in rotary]
        elif fuses(x):
            tables = [rotation_matrices(rotary, x.dtype), None]
        normed: torch.Tensor = self.norm(self.blocks(x, *tables, mask))
        return normed


# --- tokens and batches ----------------------------------------------------------------------

CLS, PAD, EOS, UNK = 0, 1, 2, 3
LETTERS = "LAGVSERTIDPKQNFYMHWCXBUZO.-"  # tokens 4..30
_TOKEN_OF_LETTER = np.full(256, UNK, np.int64)
_TOKEN_OF_LETTER[np.frombuffer(LETTERS.encode(), np.uint8)] = np.arange(4, 4 + len(LETTERS))
FRAME = LETTERS_PER_FRAME["protein"]


def tokenise(proteins: Sequence[str], step: int = 1) -> npt.NDArray[np.int64]:
    """Return ``<cls>``, residues, ``<eos>`` and padding: ``[B, longest + 2]``.

    Unknown letters are ``<unk>``. The number of columns is the next multiple of ``step``.
    """
    columns = padded_length(max(map(len, proteins)) + 2, step)
    tokens = np.full((len(proteins), columns), PAD, np.int64)
    tokens[:, 0] = CLS
    for row, protein in zip(tokens, proteins, strict=True):
        letters = np.frombuffer(protein.encode("ascii", "replace"), np.uint8)
        row[1 : len(letters) + 1] = _TOKEN_OF_LETTER[letters]
        row[len(letters) + 1] = EOS
    return tokens


class Esm2Encoder(BatchedEncoder):
    """ESM-2 on a device. An embedding is the mean over the first ``truncation`` residues."""

    # The original's 2048 at least. At 32,768 tokens the smallest matrix product of the 3B model has
    # 0.4 TFLOP: its launch no longer shows, and twice the tokens gain 1 % on an H200. On a CPU 512
    # are as fast per core as 2048 (35M and 650M, one thread), and 250 proteins are 84 batches for
    # its cores instead of 21.
    bounds = Bounds("tokens", cpu=512, least=2048, most=32768)
    # 21,000 frames of the 3B model. On an H200 compiling takes 4 s where the kernels are in a cache
    # and 20 s elsewhere, and saves 0.4 ms per frame (195: 408 ms as written, 331 ms compiled).
    compile_from_flops = 2e16
    typical_tokens = FRAME + 2

    def __init__(
        self, model: Esm2, rotary: Rotary, device: torch.device, budget: int | None
    ) -> None:
        self._heads = model.heads
        self._rotary = rotary
        self._truncation = len(rotary[0]) - 2  # without <cls> and <eos>
        super().__init__(model, device, budget)

    def batches(self, sequences: Sequence[str]) -> Iterator[Batch]:
        """Put equal lengths together, the longest first.

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
            return Batch.of(indices, total, tokenise(proteins))
        tokens = tokenise(proteins, self.step)
        position = np.arange(tokens.shape[1])
        real = position < lengths[:, None] + 2  # [B, T], with <cls> and <eos>
        inner = (position > 0) & (position <= lengths[:, None])  # [B, T], residues
        return Batch.of(indices, total, tokens, real, inner)

    def probe_batch(self, amount: int) -> Batch:
        """Full frames of 500 bp chunks."""
        proteins = ["A" * min(FRAME, self._truncation)] * max(1, amount // (FRAME + 2))
        return self._batch(range(len(proteins)), proteins)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """One batch: tokens, with two masks where they are padded, to float32 ``[B, D]``."""
        states = self._states(*inputs)
        if len(inputs) == 1:
            return states[:, 1:-1].mean(dim=1, dtype=torch.float32)
        return masked_mean(states, inputs[2])

    def _states(self, tokens: torch.Tensor, *masks: torch.Tensor) -> torch.Tensor:
        """Return the states of the last layer, after its norm: ``[B, T, D]``."""
        t = tokens.shape[1]
        rotary = (self._rotary[0][:t], self._rotary[1][:t])
        mask = masks[0][:, None, None, :] if masks else None
        states: torch.Tensor = self.network(tokens, rotary, mask)
        return states

    def encode_residues(
        self, sequences: Sequence[str], report: ReportProgress
    ) -> list[torch.Tensor]:
        """Return the state of each residue: float32 ``[L, dim]`` on the CPU per sequence.

        Those are the representations of the last layer without ``<cls>`` and ``<eos>``. A sequence
        of more residues than count is cut.
        """
        rows = [torch.empty(0, self.dim)] * len(sequences)
        self.budget.largest = 0
        with torch.inference_mode():
            for batch in self.batches(sequences):
                self.budget.largest = max(self.budget.largest, len(batch.indices))
                states = self._states(*(x.to(self.device) for x in batch.inputs)).float().cpu()
                for row, number in zip(states, batch.indices, strict=True):
                    length = min(len(sequences[number]), self._truncation)
                    rows[number] = row[1 : length + 1].clone()
                report(len(batch.indices), batch.tokens)
        return rows

    def compile_examples(self) -> list[Example]:
        """Batches of equal lengths, and padded ones."""
        t = min(FRAME + 2, len(self._rotary[0]))
        b = example_sequences(min(self.budget.amount, self.bounds.most) // t, t)
        tables = (table[None, :t, None, None].repeat(b, 1, 1, 1, 1) for table in self._rotary)
        inputs = (self.random_state(b, t), *tables)
        mask = torch.ones(b, 1, 1, t, dtype=torch.bool, device=self.device)
        mask[:, :, :, t // 2 :] = False
        free = ((0, 1), (0, 1), (0, 1), (0, 3))
        return [Example((*inputs, None), free), Example((*inputs, mask), free)]

    def attention(self) -> str:
        """The kernel for a batch of equal lengths, which has no mask."""
        heads, weight = self._heads, self.network.embed.weight
        return attention_kernel(weight.new_empty(1, heads, FRAME + 2, self.dim // heads), None)


# --- weights ---------------------------------------------------------------------------------
#
# layout          path                              sizes from
# fair-esm        ``esm2_t36_3B_UR50D.pt``          ``cfg`` in the file
# transformers    folder, safetensors or ``.bin``   ``config.json``

_FAIR_EPS = 1e-5  # torch's default for LayerNorm, which fair-esm's ESM1bLayerNorm keeps
# The names of our modules in both.
FAIR_NAMES = {
    "embed": "embed_tokens",
    "norm": "emb_layer_norm_after",
    "attention_norm": "layers.{i}.self_attn_layer_norm",
    "qkv": " ".join(f"layers.{{i}}.self_attn.{part}_proj" for part in "qkv"),
    "out": "layers.{i}.self_attn.out_proj",
    "mlp_norm": "layers.{i}.final_layer_norm",
    "fc1": "layers.{i}.fc1",
    "fc2": "layers.{i}.fc2",
}
HUB_NAMES = {
    "embed": "embeddings.word_embeddings",
    "norm": "encoder.emb_layer_norm_after",
    "attention_norm": "encoder.layer.{i}.attention.LayerNorm",
    "qkv": " ".join(f"encoder.layer.{{i}}.attention.self.{n}" for n in ("query", "key", "value")),
    "out": "encoder.layer.{i}.attention.output.dense",
    "mlp_norm": "encoder.layer.{i}.LayerNorm",
    "fc1": "encoder.layer.{i}.intermediate.dense",
    "fc2": "encoder.layer.{i}.output.dense",
}


# The sizes as fair-esm names them, in a Namespace or, in newer files, a dict.
FAIR_SIZES = {
    "num_hidden_layers": "encoder_layers",
    "hidden_size": "encoder_embed_dim",
    "num_attention_heads": "encoder_attention_heads",
    "token_dropout": "token_dropout",
}


def _read_fair_file(path: Path) -> tuple[Esm2Sizes, Tensors]:
    """Return the sizes and the tensors in a ``.pt`` of fair-esm."""
    content = as_type(read_pickle(path, allowed=[argparse.Namespace]), dict[str, Any], path)
    config = as_type(content.get("cfg"), dict[str, Any], path)
    said = config.get("model")
    if isinstance(said, argparse.Namespace):
        said = vars(said)
    said = as_type(said, dict[str, Any], path)
    tensors = as_type(content.get("model"), Tensors, path)
    tensors = renamed(tensors, r"encoder\.sentence_encoder\.|encoder\.")
    sizes = {name: said.get(key) for name, key in FAIR_SIZES.items()}
    sizes["intermediate_size"] = tensors.get("layers.0.fc1.bias", torch.empty(0)).numel()
    sizes["layer_norm_eps"] = _FAIR_EPS
    return as_type(sizes, Esm2Sizes, path), tensors


def _stored_frequencies(
    tensors: Mapping[str, torch.Tensor], sizes: Esm2Sizes, place: Path
) -> torch.Tensor:
    """Return the stored rotary frequencies, or computed ones where none are stored.

    The stored ones were rounded to float16 with the released weights: computing them anew would
    move the phase by 0.03 rad at position 168. They stand in every layer, or once under a name
    with a literal ``*``.
    """
    pairs = sizes.width // sizes.heads // 2
    stored = [value for key, value in tensors.items() if key.split(".")[-1] == "inv_freq"]
    if not stored:
        return rotary_frequencies(pairs)
    if stored[0].shape != (pairs,):
        raise ModelError(f"{place}: the number of heads is not that of its weights")
    return stored[0].float()


# --- the family ------------------------------------------------------------------------------


def is_esm2(path: Path) -> bool:
    """Return whether this is a checkpoint of fair-esm, or a folder whose config says ESM."""
    if path.is_dir():
        config = read_json(path / "config.json")
        # Older ESMs are of that type, too, and are built in another way.
        rotary = config.get("position_embedding_type") == "rotary"
        return config.get("model_type") == "esm" and rotary
    if path.suffix != ".pt" and not zipfile.is_zipfile(path):
        return False
    content = read_pickle(path, allowed=[argparse.Namespace])
    return isinstance(content, dict) and bool({"cfg", "model"} & set(content))


def esm2_files(path: Path) -> tuple[Path, ...]:
    """Return the checkpoint, or the configuration and the weights of a folder."""
    return (path,) if path.is_file() else (path / "config.json", *weight_files(path))


def esm2_width(path: Path) -> int:
    """Return the width of the model. Raises ModelError where it is not an ESM-2."""
    return (read_sizes(path, Esm2Sizes) if path.is_dir() else _read_fair_file(path)[0]).width


def open_esm2(source: EncoderSource, options: OpenOptions) -> Esm2Encoder:
    """Load the weights onto the device. The budget is tokens per batch."""
    path = source.weights
    if path.is_dir():
        modules, sizes = HUB_NAMES, read_sizes(path, Esm2Sizes)
        tensors = renamed(read_folder(path), r"esm\.")
    else:
        modules, (sizes, tensors) = FAIR_NAMES, _read_fair_file(path)
    with torch.device("meta"):
        model = Esm2(sizes)
    target, names = torch.device(options.device), stored_names(model, modules)
    load_weights(model, tensors, path, names, target, torch_dtype(options.precision))
    prepare_blocks(model.blocks, options.precision)
    frequencies = _stored_frequencies(tensors, sizes, path)
    rotary = rotary_tables(frequencies, options.truncation + 2, target)
    return Esm2Encoder(model, rotary, target, options.budget)


FAMILY = EncoderFamily(
    name="esm2",
    title="ESM-2",
    molecule="protein",
    alphabet=RESIDUES,
    open=open_esm2,
    width=esm2_width,
    recognises=is_esm2,
    files=esm2_files,
    # README of https://github.com/facebookresearch/esm, "Available models".
    released={
        "esm2_t6_8M_UR50D": (6, 320, 20),
        "esm2_t12_35M_UR50D": (12, 480, 20),
        "esm2_t30_150M_UR50D": (30, 640, 20),
        "esm2_t33_650M_UR50D": (33, 1280, 20),
        "esm2_t36_3B_UR50D": (36, 2560, 40),
        "esm2_t48_15B_UR50D": (48, 5120, 40),
    },
)
