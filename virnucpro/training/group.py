"""The processes that train one network together, as one of them sees them.

What they compute is the same on one process and on many, apart from the order of sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


def sum_over_processes(x: torch.Tensor) -> torch.Tensor:
    """Return the sum over all processes. It depends on every summand, so gradients are summed."""
    from torch.distributed.nn.functional import all_reduce

    total: torch.Tensor = all_reduce(x)  # type: ignore[no-untyped-call]
    return total


@dataclass(frozen=True)
class TrainingGroup:
    """Process ``rank`` of ``world`` on ``device``; one process alone needs no process group."""

    rank: int
    world: int
    device: torch.device

    def total(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum over all processes, the same bits on each; it passes gradients."""
        return x if self.world == 1 else sum_over_processes(x)

    def any(self, flag: bool) -> bool:
        """Return whether ``flag`` is set on any process."""
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
