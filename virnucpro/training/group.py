"""What the processes that train one network together compute over all of them.

It is the same on one process and on many, apart from the order of sums.
"""

from __future__ import annotations

import torch
from torch import distributed, nn


def own_place() -> tuple[int, int]:
    """Return the number of this process, from 0, and that of all; alone it is 0 of 1."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def sum_over_processes(x: torch.Tensor) -> torch.Tensor:
    """Return the sum over all processes, the same bits on each; gradients are summed, too."""
    if own_place()[1] == 1:
        return x
    # A torch that was built without process groups has no such module.
    from torch.distributed.nn.functional import all_reduce

    total: torch.Tensor = all_reduce(x)  # type: ignore[no-untyped-call]
    return total


class MaskedBatchNorm(nn.BatchNorm1d):
    """Batch norm whose statistics in training are those of all processes, without the padding.

    In evaluation it is the batch norm of torch.
    """

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return ``x`` ``[B, C, L]`` normalised, with zeros where ``mask`` ``[B, 1, L]`` is 0."""
        if not self.training:
            return super().forward(x) * mask
        assert self.running_mean is not None
        assert self.running_var is not None
        # float32 also under mixed precision, whose sums over thousands of residues are too coarse.
        values, residues = x.float(), mask.float()
        sums = sum_over_processes(
            torch.cat([(values * residues).sum((0, 2)), residues.sum().reshape(1)])
        )
        count = sums[-1].clamp(min=1)
        mean = sums[:-1] / count
        centred = values - mean[:, None]
        variance = sum_over_processes((centred.square() * residues).sum((0, 2))) / count
        with torch.no_grad():
            share = self.momentum or 0.0
            self.running_mean.lerp_(mean.detach(), share)
            # As in torch, the running variance is the unbiased estimate.
            unbiased = variance.detach() * count / (count - 1).clamp(min=1)
            self.running_var.lerp_(unbiased, share)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (centred * scale[:, None] + self.bias[:, None]).to(x.dtype) * mask
