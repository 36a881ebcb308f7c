"""The implementations of a model that are compared: this program's and those of other packages.

All of them compute with the same parameters, which are views of the same memory: a difference in
the results is one of arithmetic. On a CPU, this program's parameters are packed after that: the same
numbers a second time, in another order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import nn

from benchmarks.models import TRUNCATION
from virnucpro.compute.layers import masked_mean
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.esm2 import (
    FAIR_NAMES,
    HUB_NAMES,
    PAD,
    VOCABULARY,
    Esm2Encoder,
)
from virnucpro.encoders.weights import stored_names
from virnucpro.precision import PRECISIONS

VIRNUCPRO = "virnucpro"
FAIR_ESM: Final = "fair-esm"
TRANSFORMERS: Final = "transformers"
ONE_BY_ONE = "one by one"
FAIR_TOKENS = 2048  # per batch, as in the original program
MASK = 32  # <mask>
Embed = Callable[[list[str]], torch.Tensor]


@dataclass(frozen=True)
class Implementation:
    """A program that computes a model at a precision.

    Attributes:
        embed: turns sequences into float32 ``[n, dim]`` on the CPU, in their order.
        encoder: this program's encoder, whose parameters every implementation shares.
    """

    program: str
    precision: str
    embed: Embed
    encoder: BatchedEncoder

    @property
    def name(self) -> str:
        """The program and the precision, such as ``virnucpro bf16``."""
        return f"{self.program} {self.precision}"


def own_embed(encoder: BatchedEncoder) -> Embed:
    """Return a function that embeds as predict does."""
    return partial(encoder.encode, report=lambda sequences, tokens: None)


def other_implementations(encoder: BatchedEncoder, precision: str) -> Iterator[Implementation]:
    """Yield implementations of other programs with the weights of ``encoder``.

    In fp32 the way of the original is among them. One that cannot be imported is left out, with a
    line about the reason.
    """
    makers: dict[str, Callable[[], Embed]] = {}
    if not isinstance(encoder, Esm2Encoder):
        # The code of the original does not run with any current transformers. It also waited for
        # each row to come back and had no fused attention: it cannot have been faster than this.
        if precision == "fp32":
            alone = copy.copy(encoder)  # shares the network
            alone.set_budget(1)
            yield Implementation(ONE_BY_ONE, precision, own_embed(alone), alone)
        return
    if precision == "fp32":
        makers[FAIR_ESM] = partial(fair_esm, encoder)
    if PRECISIONS[precision].linear_layers == "cast":
        makers[TRANSFORMERS] = partial(transformers_esm, encoder)
    for name, make in makers.items():
        try:
            yield Implementation(name, precision, make(), encoder)
        except ImportError as error:
            print(f"{name} is left out, because it cannot be imported: {error}", flush=True)


def fair_esm(encoder: BatchedEncoder) -> Embed:
    """Return fair-esm as the original runs it: its batches of 2,048 tokens, its converter.

    Raises:
        ImportError: it cannot be imported.
    """
    from esm.data import FastaBatchedDataset
    from esm.model.esm2 import ESM2

    network: Any = encoder.network
    last = len(network.blocks)
    with encoder.device:
        model = ESM2(last, encoder.dim, network.heads, "ESM-1b", token_dropout=True)
    _share_weights(model, encoder, FAIR_NAMES)
    convert = model.alphabet.get_batch_converter(TRUNCATION)

    def embed(sequences: list[str]) -> torch.Tensor:
        data = FastaBatchedDataset(sequences, sequences)
        rows = torch.empty(len(sequences), encoder.dim)
        with torch.inference_mode():
            for indices in data.get_batch_indices(FAIR_TOKENS, extra_toks_per_seq=1):
                _, texts, tokens = convert([data[i] for i in indices])
                tokens = tokens.to(encoder.device, non_blocking=True)
                states = model(tokens, [last])["representations"][last].cpu()
                for i, text, state in zip(indices, texts, states, strict=True):
                    rows[i] = state[1 : min(TRUNCATION, len(text)) + 1].mean(0)
        return rows

    return embed


def transformers_esm(encoder: BatchedEncoder) -> Embed:
    """Return ``EsmModel`` of transformers with torch's fused attention, on our batches.

    Raises:
        ImportError: it cannot be imported.
    """
    from transformers import EsmConfig, EsmModel

    network: Any = encoder.network
    about: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": encoder.dim,
        "num_hidden_layers": len(network.blocks),
        "num_attention_heads": network.heads,
        "intermediate_size": network.blocks[0].fc1.out_features,
        "position_embedding_type": "rotary",
        "token_dropout": True,
        "layer_norm_eps": network.norm.eps,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": TRUNCATION + 2,
        "pad_token_id": PAD,
        "mask_token_id": MASK,
        "attn_implementation": "sdpa",
    }
    with encoder.device:
        model = EsmModel(EsmConfig(**about), add_pooling_layer=False)
    _share_weights(model, encoder, HUB_NAMES)

    def embed(sequences: list[str]) -> torch.Tensor:
        order: list[int] = []
        rows = []
        with torch.inference_mode():
            for batch in encoder.batches(sequences):
                tokens, *masks = (t.to(encoder.device, non_blocking=True) for t in batch.inputs)
                real = masks[0].long() if masks else None
                x = model(input_ids=tokens, attention_mask=real).last_hidden_state
                mean = masked_mean(x, masks[1]) if masks else x[:, 1:-1].mean(1, dtype=torch.float)
                rows.append(mean)
                order += batch.indices
            means = torch.cat(rows).cpu()
            return torch.empty_like(means).index_copy_(0, torch.tensor(order), means)

    return embed


def _share_weights(model: nn.Module, encoder: BatchedEncoder, modules: dict[str, str]) -> None:
    """Replace the parameters of a model by ours; heads that give no embedding keep their own."""
    network: Any = encoder.network
    own, names = network.state_dict(), stored_names(network, modules)
    state: dict[str, torch.Tensor] = {}
    for name, value in own.items():
        state |= dict(zip(names[name], value.chunk(len(names[name])), strict=True))
    unknown = model.load_state_dict(state, strict=False, assign=True).unexpected_keys
    assert not unknown, unknown
    model.requires_grad_(False).eval()
