"""The processes that train together, as one of them sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class _Sum(torch.autograd.Function):
    """The sum over all processes. Each depends on every summand: so gradients are summed too."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        added = x.clone()
        dist.all_reduce(added)
        return added

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        added = gradient.contiguous().clone()
        dist.all_reduce(added)
        return added


@dataclass(frozen=True)
class Team:
    """Process ``rank`` of ``world``, on ``device``. A world of one needs no process group."""

    rank: int
    world: int
    device: torch.device

    def total(self, x: torch.Tensor) -> torch.Tensor:
        """Sum over all processes, the same bits on each; passes gradients."""
        if self.world == 1:
            return x
        added: torch.Tensor = _Sum.apply(x)  # type: ignore[no-untyped-call]
        return added

    def any(self, flag: bool) -> bool:
        """Whether ``flag`` is set on any process."""
        if self.world == 1:
            return flag
        with torch.no_grad():
            return bool(self.total(torch.tensor(float(flag), device=self.device)) > 0)

    def wrapped(self, network: nn.Module) -> nn.Module:
        """``network`` with gradients averaged over the processes."""
        if self.world == 1:
            return network
        ids = [self.device] if self.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(network, device_ids=ids)
