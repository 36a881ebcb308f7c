"""DNABERT-S: nucleotide sequences to the mean of their tokens in the last layer.

Zhou et al. 2024, https://arxiv.org/abs/2402.08777: BERT with ALiBi
(https://arxiv.org/abs/2108.12409) and a gated MLP. The code of the released weights does not run
with current transformers and would have to be trusted; this needs the weights, the tokenizer and
the sizes. In this order: the network, its tokens and batches, its files, and the family.
Shapes: B sequences, T tokens, D width, H heads, d = D / H, I width of the MLP.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from msgspec import field
from tokenizers import Tokenizer
from torch import nn

from virnucpro.compute.budget import Bounds, by_sequences, padded_length
from virnucpro.compute.compiled import Example, Network, Stack
from virnucpro.compute.layers import (
    GatedLinear,
    Linear,
    attend,
    attention_kernel,
    masked_mean,
    merge_heads,
    split_heads,
    torch_dtype,
)
from virnucpro.encoders.batched import STEP, Batch, BatchedEncoder, example_sequences
from virnucpro.encoders.family import BASES, EncoderFamily, EncoderSource, OpenOptions
from virnucpro.encoders.weights import (
    Count,
    Embedding,
    TransformerSizes,
    load_weights,
    read_folder,
    read_json,
    read_sizes,
    renamed,
    stored_names,
    weight_files,
)
from virnucpro.errors import ModelError


class DnabertSizes(TransformerSizes, frozen=True):
    """What a model is built from."""

    vocabulary: Count = field(name="vocab_size")
    token_types: Count = field(name="type_vocab_size")


def alibi_slopes(heads: int) -> list[float]:
    """Return the slopes of ``heads`` heads, as Press et al. define them."""
    power = 1 << (heads.bit_length() - 1)  # the greatest power of two <= heads
    start = 2.0 ** -(2.0 ** -(math.log2(power) - 3))
    slopes = [start ** (k + 1) for k in range(power)]
    return slopes if power == heads else slopes + alibi_slopes(2 * power)[::2][: heads - power]


class DnabertBlock(nn.Module):
    """A transformer block with a gated MLP and layer norms after attention and MLP."""

    def __init__(self, sizes: DnabertSizes) -> None:
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
        x = self.attention_norm(self.out.added(merge_heads(attended), x))  # [B, T, D]
        hidden = self.gated(x)  # [B, T, I]
        normed: torch.Tensor = self.mlp_norm(self.wo.added(hidden, x))  # [B, T, D]
        return normed


class Dnabert(Network):
    """Tokens to the states of the last layer."""

    def __init__(self, sizes: DnabertSizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.embed = Embedding(sizes.vocabulary, sizes.width)
        self.token_type = Embedding(sizes.token_types, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, sizes.eps)
        self.blocks = Stack(DnabertBlock(sizes) for _ in range(sizes.layers))

    def forward(self, tokens: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """int64 ``[B, T]`` to ``[B, T, D]`` in the precision of the weights."""
        embedded = self.embed(tokens) + self.token_type.weight[0]  # [B, T, D]
        x: torch.Tensor = self.blocks(self.norm(embedded), bias)
        return x


# --- tokens and batches ----------------------------------------------------------------------

# Sequences that are tokenised together; while one slice is computed, the next one is tokenised.
# Each ends in a partly filled batch; this many are full batches of the largest budget.
SLICE = 1280
PART = 64  # sequences whose encodings are freed together: the thread holds Python's lock meanwhile
FRAME_TOKENS = 120  # of the longest frames of 500 bp chunks, with padding
BIAS_ELEMENTS = 1 << 26  # of one batch's attention bias: 128 MiB in 16 bit


class DnabertEncoder(BatchedEncoder):
    """DNABERT-S on a device. An embedding is the mean over all tokens, ``[CLS]`` and ``[SEP]`` too.

    A letter outside ACGT becomes ``[UNK]``, as in the original.
    """

    bounds = Bounds("sequences", cpu=16, least=16, most=256)  # 256 are some 26,000 tokens
    # 550,000 frames. On an H200 compiling takes 8 to 11 s, also where the kernels are in a cache,
    # and saves 18 microseconds per frame (256 sequences: 26.2 ms as written, 21.6 ms compiled).
    compile_from_flops = 1.3e16
    typical_tokens = 104  # of most frames of 500 bp chunks, with padding

    def __init__(
        self, model: Dnabert, tokenizer: Tokenizer, device: torch.device, budget: int | None
    ) -> None:
        self._tokenizer = tokenizer
        self._heads = model.heads
        self._bias = torch.empty(model.heads, 0, 0)
        super().__init__(model, device, budget)

    def batches(self, sequences: Sequence[str]) -> Iterator[Batch]:
        """Put the longest into the first slice, and neighbours in tokens of a slice together.

        Batches over all sequences would be fuller, but the first one would have to wait until the
        last sequence is tokenised.
        """
        order = sorted(range(len(sequences)), key=lambda i: (-len(sequences[i]), i))
        for start in range(0, len(order), SLICE):
            part = order[start : start + SLICE]
            ids = []
            for first in range(0, len(part), PART):
                texts = [sequences[i] for i in part[first : first + PART]]
                # The fast way leaves out where in the text a token is.
                encodings = self._tokenizer.encode_batch_fast(texts)
                ids += [np.array(encoding.ids, np.int64) for encoding in encodings]
                del encodings
            lengths = [len(row) for row in ids]
            area = BIAS_ELEMENTS // self._heads
            for rows in by_sequences(lengths, self.budget.amount, step=STEP, area=area):
                yield _padded_batch([part[row] for row in rows], [ids[row] for row in rows])

    def probe_batch(self, amount: int) -> Batch:
        """The longest frames of 500 bp chunks."""
        return _padded_batch(range(amount), [np.zeros(FRAME_TOKENS, np.int64)] * amount)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """One batch: tokens and which are real, ``[B, T]``, to float32 ``[B, D]``."""
        tokens, real = inputs
        bias = self._bias_of(tokens.shape[1])[None]  # [1, H, T, T]
        bias = bias.masked_fill(~real[:, None, None, :], -math.inf)  # [B, H, T, T]
        return masked_mean(self.network(tokens, bias), real)

    def compile_examples(self) -> list[Example]:
        """Any batch: there always is a bias."""
        t = self.typical_tokens
        b = example_sequences(min(self.budget.amount, self.bounds.most), t)
        bias = self._bias_of(t).repeat(b, 1, 1, 1)
        return [Example((self.random_state(b, t), bias), ((0, 1), (0, 2, 3)))]

    def attention(self) -> str:
        """The kernel for a batch, whose bias takes the place of a mask."""
        bias = self._bias_of(FRAME_TOKENS)[None]
        q = bias.new_empty(1, self._heads, FRAME_TOKENS, self.dim // self._heads)
        return attention_kernel(q, bias)

    def _bias_of(self, length: int) -> torch.Tensor:
        """ALiBi ``-slope * |i - j|``, ``[H, length, length]``: a corner of the largest so far."""
        bias = self._bias  # another thread may put a smaller one in its place meanwhile
        if length > bias.shape[-1]:
            dtype = self.network.embed.weight.dtype
            position = torch.arange(length, dtype=torch.float32)
            distance = (position[:, None] - position[None, :]).abs()  # [length, length]
            slopes = torch.tensor(alibi_slopes(self._heads))[:, None, None]
            self._bias = bias = (-slopes * distance).to(self.device).to(dtype)
        return bias[:, :length, :length]


def _padded_batch(indices: Sequence[int], ids: Sequence[npt.NDArray[np.int64]]) -> Batch:
    """Token ids of one batch: int64 ``[B, T]``, and which are real."""
    lengths = np.array([len(row) for row in ids])
    t = padded_length(int(lengths.max()), STEP)
    # By length, never by id: the pad id of config.json is [UNK] to the tokenizer.
    real = np.arange(t) < lengths[:, None]
    padded = np.zeros(real.shape, np.int64)
    padded[real] = np.concatenate(ids)
    return Batch.of(indices, int(lengths.sum()), padded, real)


# --- files -----------------------------------------------------------------------------------

# The stored names of our modules.
DNABERT_NAMES = {
    "embed": "embeddings.word_embeddings",
    "token_type": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "qkv": "encoder.layer.{i}.attention.self.Wqkv",
    "out": "encoder.layer.{i}.attention.output.dense",
    "attention_norm": "encoder.layer.{i}.attention.output.LayerNorm",
    "gated": "encoder.layer.{i}.mlp.gated_layers",
    "wo": "encoder.layer.{i}.mlp.wo",
    "mlp_norm": "encoder.layer.{i}.mlp.layernorm",
}


def read_tokenizer(path: Path, vocabulary: int) -> Tokenizer:
    """Read the byte-pair tokenizer of a model with ``vocabulary`` tokens; it neither pads nor cuts.

    Raises:
        ModelError: damaged, of another model, or without ``[CLS] ... [SEP]``.
    """
    content = read_json(path)
    try:
        tokenizer = Tokenizer.from_buffer(path.read_bytes())
    except ValueError as error:
        raise ModelError(f"{path} is no tokenizer ({error}): fetch it again") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    template = content.get("post_processor") or {}
    pieces = [piece.get("SpecialToken") for piece in template.get("single", ())]
    # The library ends the process where it meets one that the file does not explain.
    named = {piece["id"] for piece in pieces if piece} <= template.get("special_tokens", {}).keys()
    if not named or len(tokenizer.encode("").ids) != 2:
        raise ModelError(f"{path} does not put [CLS] and [SEP] around a sequence: fetch it again")
    unknown = getattr(tokenizer.model, "unk_token", None)
    tokens = {*tokenizer.get_vocab().values(), *tokenizer.encode("").ids}
    if max(tokens) >= vocabulary or (unknown and tokenizer.model.token_to_id(unknown) is None):
        raise ModelError(f"{path} has other tokens than the model: fetch both again")
    return tokenizer


# --- the family ------------------------------------------------------------------------------


def is_dnabert(path: Path) -> bool:
    """Return whether this is a folder whose configuration is of a BERT with ALiBi."""
    return path.is_dir() and "alibi_starting_size" in read_json(path / "config.json")


def open_dnabert(source: EncoderSource, options: OpenOptions) -> DnabertEncoder:
    """Load the model. The budget is sequences per batch, and nothing is truncated."""
    sizes = read_sizes(source.weights, DnabertSizes)
    tensors = renamed(read_folder(source.weights), r"bert\.")
    with torch.device("meta"):
        model = Dnabert(sizes)
    target, names = torch.device(options.device), stored_names(model, DNABERT_NAMES)
    dtype = torch_dtype(options.precision)
    load_weights(model, tensors, source.weights, names, target, dtype)
    tokenizer = read_tokenizer(source.weights / "tokenizer.json", sizes.vocabulary)
    return DnabertEncoder(model, tokenizer, target, options.budget)


# DNABERT-S, and other BERT models with ALiBi and a gated MLP.
FAMILY = EncoderFamily(
    name="dnabert-s",
    title="DNABERT-S",
    molecule="nucleotide",
    alphabet=BASES,
    open=open_dnabert,
    width=lambda path: read_sizes(path, DnabertSizes).width,
    recognises=is_dnabert,
    files=lambda path: (path / "config.json", path / "tokenizer.json", *weight_files(path)),
    # config.json of https://huggingface.co/zhihan1996/DNABERT-S
    released={"DNABERT-S": (12, 768, 12)},
    # Products in 8 bits are too small here: on an H200 1.02 times the rate of bf16 for chunks of
    # 500 bases, and 0.84 times for 300.
    instead={"fp8": "bf16"},
)
