"""The processes that train one network together, as one of them sees them.

What they compute is the same on one process and on many, apart from the order of sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class SumOverProcesses(torch.autograd.Function):
    """The sum over all processes. It depends on every summand, so gradients are summed too."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of ``x`` over all processes."""
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Return the sum of ``gradient`` over all processes."""
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total


@dataclass(frozen=True)
class TrainingGroup:
    """Process ``rank`` of ``world`` on ``device``; one process alone needs no process group."""

    rank: int
    world: int
    device: torch.device

    def total(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum over all processes, the same bits on each; it passes gradients."""
        if self.world == 1:
            return x
        total: torch.Tensor = SumOverProcesses.apply(x)  # type: ignore[no-untyped-call]
        return total

    def any(self, flag: bool) -> bool:
        """Return whether ``flag`` is set on any process."""
        if self.world == 1:
            return flag
        with torch.no_grad():
            return bool(self.total(torch.tensor(float(flag), device=self.device)) > 0)

    def own_rows(self, rows: int) -> slice:
        """Return which of ``rows`` rows this process takes."""
        return slice(self.rank * rows // self.world, (self.rank + 1) * rows // self.world)

    def wrapped(self, network: nn.Module) -> nn.Module:
        """Return ``network`` with its gradients averaged over the processes."""
        if self.world == 1:
            return network
        ids = [self.device] if self.device.type == "cuda" else None
        # Buffers are the same on every process already: they follow from sums over all of them.
        return nn.parallel.DistributedDataParallel(network, device_ids=ids, broadcast_buffers=False)
