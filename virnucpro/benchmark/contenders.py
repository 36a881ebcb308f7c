"""Ours and the other implementations of a model, with the same weights.

The others are lent our parameters: views of the same memory, so that a 3B model fits beside its
reference, and a difference in the results is one of arithmetic. On a CPU ours are packed
after that: the same numbers a second time, in another order.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
from torch import nn

from virnucpro.benchmark.machine import version
from virnucpro.benchmark.models import TRUNCATION
from virnucpro.compute.attention import masked_mean
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.esm2 import DROPOUT_SCALE, PAD, VOCABULARY, esm2_names

OURS = "virnucpro"
FAIR: Final = "fair-esm"
HUB: Final = "transformers"
ONE_BY_ONE = "one by one"
FAIR_TOKENS = 2048  # a batch of the original
MASK = 32  # <mask>
FAIR_EPS = 1e-5  # of its layer norms; it has no setting for them


@dataclass(frozen=True)
class Contender:
    """An implementation with a model on the device.

    Attributes:
        embed: sequences to float32 ``[n, dim]`` on the CPU, in their order.
        encoder: ours, or the one whose parameters it was lent.
        batches: what goes through the model together, in words.
        load_seconds: until it could be called.
    """

    implementation: str
    precision: str
    embed: Callable[[Sequence[str]], torch.Tensor]
    encoder: BatchedEncoder
    batches: str
    attention: str
    load_seconds: float

    @property
    def name(self) -> str:
        """``virnucpro bf16``."""
        return f"{self.implementation} {self.precision}"

    @property
    def weights(self) -> int:
        """Bytes of its parameters."""
        return sum(p.numel() * p.element_size() for p in self.encoder.network.parameters())


def ours(encoder: BatchedEncoder, precision: str, load_seconds: float) -> Contender:
    """The encoder as predict runs it."""
    batches = f"{encoder.budget.amount:,} {encoder.bounds.unit} ({encoder.budget.found})"

    def embed(sequences: Sequence[str]) -> torch.Tensor:
        return encoder.encode(sequences, _unread)

    return Contender(OURS, precision, embed, encoder, batches, encoder.attention(), load_seconds)


def one_by_one(encoder: BatchedEncoder) -> Contender:
    """DNABERT-S one sequence at a time, as the original ran it, through our own forward pass.

    The original's code runs with no current transformers. It also waited for each row to come back,
    and had no fused attention, so that it cannot have been faster than this.
    """
    alone = copy.copy(encoder)  # shares the network
    alone.set_budget(1)

    def embed(sequences: Sequence[str]) -> torch.Tensor:
        return alone.encode(sequences, _unread)

    return Contender(ONE_BY_ONE, "fp32", embed, alone, "1 sequence", encoder.attention(), 0.0)


def _unread(sequences: int, tokens: int) -> None:
    """A report that nobody reads."""


def fair_esm(encoder: BatchedEncoder, inv_freq: torch.Tensor) -> Contender | None:
    """fair-esm as the original runs it: fp32, its own batches of 2,048 tokens and its converter.

    None where it is not installed, or cannot build this model.
    """
    network: Any = encoder.network
    block = network.blocks[0]
    usual = block.fc1.out_features == 4 * encoder.dim and network.norm.eps == FAIR_EPS
    if version(FAIR) is None or not usual:
        return None
    from esm.data import FastaBatchedDataset
    from esm.model.esm2 import ESM2

    started = time.perf_counter()
    with torch.device("meta"):
        model = ESM2(
            len(network.blocks),
            encoder.dim,
            network.heads,
            "ESM-1b",
            token_dropout=network.scale == DROPOUT_SCALE,
        )
    _lend(model, network, FAIR, inv_freq)
    convert = model.alphabet.get_batch_converter(TRUNCATION)
    last = len(network.blocks)

    def embed(sequences: Sequence[str]) -> torch.Tensor:
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

    seconds = time.perf_counter() - started
    return Contender(FAIR, "fp32", embed, encoder, f"{FAIR_TOKENS:,} tokens", "math", seconds)


def hub_esm(encoder: BatchedEncoder, inv_freq: torch.Tensor, precision: str) -> Contender | None:
    """``EsmModel`` of transformers with torch's fused attention, on our batches and tokens.

    None where it is not installed.
    """
    if version(HUB) is None:
        return None
    from transformers import EsmConfig, EsmModel

    started = time.perf_counter()
    network: Any = encoder.network
    about: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": encoder.dim,
        "num_hidden_layers": len(network.blocks),
        "num_attention_heads": network.heads,
        "intermediate_size": network.blocks[0].fc1.out_features,
        "position_embedding_type": "rotary",
        "token_dropout": network.scale == DROPOUT_SCALE,
        "emb_layer_norm_before": False,
        "layer_norm_eps": network.norm.eps,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": TRUNCATION + 2,
        "pad_token_id": PAD,
        "mask_token_id": MASK,
        "attn_implementation": "sdpa",
    }
    config = EsmConfig(**about)
    with torch.device("meta"):
        model = EsmModel(config, add_pooling_layer=False)
    _lend(model, network, HUB, inv_freq)

    def embed(sequences: Sequence[str]) -> torch.Tensor:
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
            found = torch.cat(rows).cpu()
            return torch.empty_like(found).index_copy_(0, torch.tensor(order), found)

    batches = f"{encoder.budget.amount:,} {encoder.bounds.unit}"
    seconds = time.perf_counter() - started
    return Contender(HUB, precision, embed, encoder, batches, config._attn_implementation, seconds)


def _lend(
    model: nn.Module,
    network: nn.Module,
    layout: Literal["fair-esm", "transformers"],
    inv_freq: torch.Tensor,
) -> None:
    """Put our parameters into a model made on the meta device; what it needs beside is zero."""
    own = network.state_dict()
    device = next(network.parameters()).device
    blocks = len(network.blocks)  # type: ignore[arg-type]
    state: dict[str, torch.Tensor] = {}
    for name, theirs in esm2_names(blocks, layout).items():
        state |= dict(zip(theirs, own[name].chunk(len(theirs)), strict=True))
    unknown = model.load_state_dict(state, strict=False, assign=True).unexpected_keys
    assert not unknown, unknown
    for module, name, tensor in list(_tensors(model)):
        if name == "inv_freq":
            setattr(module, name, inv_freq.to(device))
        elif tensor.is_meta:  # heads that give no embedding, and positions that are not used
            empty = torch.zeros_like(tensor, device=device)
            if isinstance(tensor, nn.Parameter):
                empty = nn.Parameter(empty.to(own["embed.weight"].dtype))
            setattr(module, name, empty)
    model.requires_grad_(False).eval()


def _tensors(model: nn.Module) -> Iterator[tuple[nn.Module, str, torch.Tensor]]:
    """Every parameter and buffer, with the module it is of and its name there."""
    for module in model.modules():
        for name, tensor in (
            *module.named_parameters(recurse=False),
            *module.named_buffers(recurse=False),
        ):
            yield module, name, tensor
