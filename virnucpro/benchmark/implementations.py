"""The implementations of a model that are compared: this program's and those of other packages.

All of them compute with the same parameters, which are views of the same memory. So a 3B model
fits beside its reference, and a difference in the results is one of arithmetic. On a CPU, this
program's parameters are packed after that: the same numbers a second time, in another order.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import torch
from torch import nn

from virnucpro.benchmark.measuring import Notify
from virnucpro.benchmark.models import TRUNCATION, BenchmarkModel, rotary_frequencies_of
from virnucpro.compute.attention import masked_mean
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.esm2 import PAD, Esm2Encoder, esm2_names
from virnucpro.encoders.esm2_network import DROPOUT_SCALE, VOCABULARY
from virnucpro.precision import PRECISIONS

VIRNUCPRO = "virnucpro"
FAIR_ESM: Final = "fair-esm"
TRANSFORMERS: Final = "transformers"
ONE_BY_ONE = "one by one"
FAIR_TOKENS = 2048  # per batch, as in the original program
MASK = 32  # <mask>
FAIR_EPS = 1e-5  # of its layer norms; there is no setting for it


@dataclass(frozen=True)
class Implementation:
    """An implementation of a model on the device.

    Attributes:
        embed: turns sequences into float32 ``[n, dim]`` on the CPU, in their order.
        encoder: this program's encoder, whose parameters every implementation shares.
        batches: the sequences that go through the model together, in words.
        load_seconds: the time until it could be called.
    """

    program: str
    precision: str
    embed: Callable[[Sequence[str]], torch.Tensor]
    encoder: BatchedEncoder
    batches: str
    attention: str
    load_seconds: float

    @property
    def name(self) -> str:
        """The program and the precision, such as ``virnucpro bf16``."""
        return f"{self.program} {self.precision}"

    @property
    def weights(self) -> int:
        """The size of its parameters in bytes."""
        return sum(p.numel() * p.element_size() for p in self.encoder.network.parameters())


def own_implementation(
    encoder: BatchedEncoder, precision: str, load_seconds: float
) -> Implementation:
    """Return the encoder as predict runs it."""
    batches = f"{encoder.budget.amount:,} {encoder.bounds.unit} ({encoder.budget.found})"

    def embed(sequences: Sequence[str]) -> torch.Tensor:
        return encoder.encode(sequences, _unread)

    return Implementation(
        VIRNUCPRO, precision, embed, encoder, batches, encoder.attention(), load_seconds
    )


def other_implementations(
    model: BenchmarkModel, encoder: BatchedEncoder, precision: str, *, asked: bool, notify: Notify
) -> Iterator[Implementation]:
    """Yield implementations of other programs with the weights of ``encoder``.

    In fp32 that is the way of the original. Transformers computes where the precision is ``asked``
    for and not opened for comparisons alone. One that cannot be imported is left out, with a
    notice of the reason.
    """
    if not isinstance(encoder, Esm2Encoder):
        if precision == "fp32":
            yield one_by_one(encoder)
        return
    frequencies = rotary_frequencies_of(model, encoder)
    makers: dict[str, Callable[[], Implementation | None]] = {}
    if precision == "fp32":
        makers[FAIR_ESM] = partial(fair_esm, encoder, frequencies)
    if asked and PRECISIONS[precision].linear_layers == "cast":
        makers[TRANSFORMERS] = partial(transformers_esm, encoder, frequencies, precision)
    for name, make in makers.items():
        try:
            peer = make()
        except ImportError as error:
            notify(f"{name} is left out, because it cannot be imported: {error}")
            continue
        if peer is not None:
            yield peer


def one_by_one(encoder: BatchedEncoder) -> Implementation:
    """Return DNABERT-S, one sequence at a time as the original ran it, in our forward pass.

    The code of the original does not run with any current transformers. It also waited for each row
    to come back and had no fused attention, so it cannot have been faster than this.
    """
    alone = copy.copy(encoder)  # shares the network
    alone.set_budget(1)

    def embed(sequences: Sequence[str]) -> torch.Tensor:
        return alone.encode(sequences, _unread)

    return Implementation(ONE_BY_ONE, "fp32", embed, alone, "1 sequence", encoder.attention(), 0.0)


def _unread(sequences: int, tokens: int) -> None:
    """Ignore a progress report."""


def fair_esm(encoder: BatchedEncoder, inv_freq: torch.Tensor) -> Implementation | None:
    """Return fair-esm as the original runs it: fp32, its batches of 2,048 tokens, its converter.

    The result is None where it cannot build this model.

    Raises:
        ImportError: it cannot be imported.
    """
    network: Any = encoder.network
    block = network.blocks[0]
    usual = block.fc1.out_features == 4 * encoder.dim and network.norm.eps == FAIR_EPS
    if not usual:
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
    _share_weights(model, network, FAIR_ESM, inv_freq)
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
    return Implementation(
        FAIR_ESM, "fp32", embed, encoder, f"{FAIR_TOKENS:,} tokens", "math", seconds
    )


def transformers_esm(
    encoder: BatchedEncoder, inv_freq: torch.Tensor, precision: str
) -> Implementation:
    """Return ``EsmModel`` of transformers with torch's fused attention, on our batches.

    Raises:
        ImportError: it cannot be imported.
    """
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
    _share_weights(model, network, TRANSFORMERS, inv_freq)

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
            means = torch.cat(rows).cpu()
            return torch.empty_like(means).index_copy_(0, torch.tensor(order), means)

    batches = f"{encoder.budget.amount:,} {encoder.bounds.unit}"
    seconds = time.perf_counter() - started
    return Implementation(
        TRANSFORMERS, precision, embed, encoder, batches, config._attn_implementation, seconds
    )


def _share_weights(
    model: nn.Module,
    network: nn.Module,
    layout: Literal["fair-esm", "transformers"],
    inv_freq: torch.Tensor,
) -> None:
    """Put our parameters into a model made on the meta device, and zeros where we have none."""
    own = network.state_dict()
    device = next(network.parameters()).device
    blocks = len(network.blocks)  # type: ignore[arg-type]
    state: dict[str, torch.Tensor] = {}
    for name, other_names in esm2_names(blocks, layout).items():
        state |= dict(zip(other_names, own[name].chunk(len(other_names)), strict=True))
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
    """Yield every parameter and buffer with its module and its name in that module."""
    for module in model.modules():
        for name, tensor in (
            *module.named_parameters(recurse=False),
            *module.named_buffers(recurse=False),
        ):
            yield module, name, tensor
