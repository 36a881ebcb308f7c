"""What both transformers really share: heads, pooling, and the loop over batches.

Shapes: B sequences, T tokens (padded), D width, H heads, d = D / H.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from virnucpro.contracts import Report


def split_heads(qkv: torch.Tensor, heads: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``[B, T, 3D]`` to query, key and value, each ``[B, H, T, d]`` (views, nothing is copied)."""
    b, t, _ = qkv.shape
    q, k, v = qkv.view(b, t, 3, heads, -1).permute(2, 0, 3, 1, 4)
    return q, k, v


def merge_heads(x: torch.Tensor) -> torch.Tensor:
    """``[B, H, T, d]`` to ``[B, T, D]``."""
    return x.transpose(1, 2).flatten(2)


def masked_mean(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """Mean over the tokens that ``keep`` (bool ``[B, T]``) marks, in float32.

    ``x`` is ``[B, T, D]`` of any floating type, the result float32 ``[B, D]``.
    """
    keep = keep.to(torch.float32)
    return torch.einsum("bt,btd->bd", keep, x.float()) / keep.sum(1, keepdim=True)


def to_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """A NumPy array on ``device``; on a GPU without waiting for what is queued there."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def run_batches(
    batches: Sequence[Sequence[int]],
    tokens: Sequence[int],
    embed: Callable[[Sequence[int]], torch.Tensor],
    dim: int,
    device: torch.device,
    report: Report,
) -> torch.Tensor:
    """Embed ``batches`` one after the other; float32 ``[len(tokens), dim]`` on the CPU.

    ``embed`` takes the indices of a batch to float32 ``[len(batch), dim]`` on the device, where
    the rows stay until the end: a copy a batch would make the GPU wait. ``report`` is called when
    a batch has been computed; on a GPU, the next one is already queued by then.
    """
    out = torch.empty(len(tokens), dim)
    if not batches:
        return out
    rows: list[torch.Tensor] = []
    queued: list[tuple[torch.cuda.Event | None, int, int]] = []
    with torch.inference_mode():
        for batch in batches:
            rows.append(embed(batch))
            queued.append((_mark(device), len(batch), sum(tokens[index] for index in batch)))
            _settle(queued, report, keep=1 if device.type == "cuda" else 0)
        out[[index for batch in batches for index in batch]] = torch.cat(rows).cpu()
    _settle(queued, report, keep=0)
    return out


def _mark(device: torch.device) -> torch.cuda.Event | None:
    """A mark in the GPU's queue behind the work just given to it."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event


def _settle(
    queued: list[tuple[torch.cuda.Event | None, int, int]], report: Report, keep: int
) -> None:
    """Wait for all but the ``keep`` youngest batches, and report them."""
    while len(queued) > keep:
        event, sequences, tokens = queued.pop(0)
        if event is not None:
            event.synchronize()
        report(sequences, tokens)
