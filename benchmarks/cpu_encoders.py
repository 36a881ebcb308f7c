"""Measure the encoders on a CPU beside other implementations, in tokens per second, in turns.

    python -m benchmarks.cpu_encoders esm2_t12_35M_UR50D [--letters 166] [--rounds 5]
    python -m benchmarks.cpu_encoders DNABERT-S --letters 499 [--threads 1]

For ESM-2 these are fair-esm in batches of 2,048 tokens as the original ran it, ``EsmModel`` of
transformers on the same batches, and this program. For DNABERT-S they are one sequence at a time
through torch's linear layers, as the original ran it, and this program. Weights are random. Each round
measures every implementation once, in one process. A ratio is the median over the rounds, with their
range. With one thread, processor seconds are measured, which other programs on the machine disturb
less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from virnucpro.benchmark.budget_curve import random_sequences
from virnucpro.encoders.esm2 import tokenise
from virnucpro.encoders.registry import random_encoder, released_families

TRUNCATION = 1024
BATCHES = 2  # of 2,048 tokens, per round
Work = Callable[[], int]  # embeds once, and returns the number of tokens


RELEASED = {name: sizes for f in released_families() for name, sizes in f.released.items()}


def virnucpro_work(family: str, name: str, precision: str, sequences: list[str]) -> Work:
    """Return the work of this program, which includes making tokens."""
    encoder = random_encoder(family, name, "cpu", precision, budget=None, truncation=TRUNCATION)
    encoder.pack()

    def work() -> int:
        embedded_tokens = 0

        def count(_: int, tokens: int) -> None:
            nonlocal embedded_tokens
            embedded_tokens += tokens

        encoder.encode(sequences, count)
        return embedded_tokens

    return work


def fair_esm_work(name: str, tokens: list[torch.Tensor]) -> Work:
    """Return the work of fair-esm in fp32, with the mean over the residues."""
    from esm.model.esm2 import ESM2

    layers, width, heads = RELEASED[name]
    model = ESM2(layers, width, heads, "ESM-1b", True).eval()

    def work() -> int:
        with torch.inference_mode():
            for batch in tokens:
                model(batch, repr_layers=[layers])["representations"][layers][:, 1:-1].mean(1)
        return sum(batch.numel() for batch in tokens)

    return work


def transformers_work(name: str, dtype: torch.dtype, tokens: list[torch.Tensor]) -> Work:
    """Return the work of ``EsmModel`` of transformers, with the attention that it chooses."""
    from transformers import EsmConfig, EsmModel

    layers, width, heads = RELEASED[name]
    config = EsmConfig(
        vocab_size=33,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        position_embedding_type="rotary",
        token_dropout=True,
        pad_token_id=1,
        mask_token_id=32,
        layer_norm_eps=1e-5,
    )
    model: torch.nn.Module = EsmModel(config, add_pooling_layer=False)
    model.eval().to(dtype)

    def work() -> int:
        with torch.inference_mode():
            for batch in tokens:
                model(batch, torch.ones_like(batch)).last_hidden_state[:, 1:-1].float().mean(1)
        return sum(batch.numel() for batch in tokens)

    return work


def one_by_one_work(name: str, sequences: list[str]) -> Work:
    """Return the work of DNABERT-S in fp32, one sequence at a time, without oneDNN."""
    encoder = random_encoder("dnabert-s", name, "cpu", "fp32", budget=None, truncation=TRUNCATION)
    encoder.set_budget(1)

    def work() -> int:
        embedded_tokens = 0

        def count(_: int, tokens: int) -> None:
            nonlocal embedded_tokens
            embedded_tokens += tokens

        torch._C._set_mkldnn_enabled(False)
        encoder.encode(sequences, count)
        torch._C._set_mkldnn_enabled(True)
        return embedded_tokens

    return work


def implementations(name: str, letters: int) -> dict[str, Work]:
    """Return the work of each implementation. The others are compared with the first."""
    if name == "DNABERT-S":
        sequences = random_sequences("dnabert-s", [letters], 128)
        return {"one by one, fp32": one_by_one_work(name, sequences[:12])} | {
            f"virnucpro {p}": virnucpro_work("dnabert-s", name, p, sequences)
            for p in ("fp32", "bf16")
        }
    room = 2048 // (letters + 2)
    sequences = random_sequences("esm2", [letters], BATCHES * room)
    tokens = list(torch.split(torch.from_numpy(tokenise(sequences)), room))
    return {
        "fair-esm fp32": fair_esm_work(name, tokens),
        "transformers fp32": transformers_work(name, torch.float32, tokens),
        "virnucpro fp32": virnucpro_work("esm2", name, "fp32", sequences),
        "transformers bf16": transformers_work(name, torch.bfloat16, tokens),
        "virnucpro bf16": virnucpro_work("esm2", name, "bf16", sequences),
    }


def main() -> None:
    """Print a line per implementation."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(RELEASED))
    parser.add_argument("--letters", type=int, default=166)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    works = implementations(options.name, options.letters)
    for work in works.values():
        work()
    speeds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(options.rounds):
        for name, work in works.items():
            started = clock()
            tokens = work()
            speeds[name].append(tokens / (clock() - started))
    base = np.array(next(iter(speeds.values())))
    print(f"{options.name}, {options.letters} letters, {options.threads} threads, torch", end=" ")
    print(f"{torch.__version__}, {options.rounds} rounds")
    for name, rates in speeds.items():
        ratio = np.array(rates) / base
        print(
            f"{name:20} {statistics.median(rates):8,.0f} tokens/s  "
            f"{np.median(ratio):5.2f}x ({ratio.min():.2f}-{ratio.max():.2f})"
        )


if __name__ == "__main__":
    main()
