"""What this program calls of torch that has no public name: all of it, with the public way beside.

Measured with torch 2.13.0 on CPUs and 2.11.0 on an H200 (GPU_OPTIMIZATION.md). Where another
version lacks a function, the public way is taken, which is slower or says less.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

PACKED_ROWS = 512  # rows of a product that weights are packed for; any number can be multiplied


@cache
def multiplies_by_onednn() -> bool:
    """Return whether oneDNN multiplies and fuses: on a CPU where torch uses AVX-512.

    Without it, products are those of MKL (:func:`torch.nn.functional.linear`).
    """
    names = "_linear_pointwise", "_reorder_linear_weight"
    has = all(hasattr(torch.ops.mkldnn, name) for name in names)
    avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return has and avx512 and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def packed(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight ``[N, K]`` as oneDNN reads it: what torch.compile does to frozen ones."""
    found: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), PACKED_ROWS)
    return found


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: str
) -> torch.Tensor:
    """Return ``activation`` (``none`` or ``gelu``) of ``x W^T + b``, by oneDNN.

    It is what torch.compile calls for a linear layer on a CPU.
    """
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(
        x, weight, bias, activation, [], "none"
    )
    return product


def linear_with(
    x: torch.Tensor,
    other: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    operation: str,
) -> torch.Tensor:
    """Return ``x W^T + b`` with ``add`` or ``mul`` of ``other``, by oneDNN in one call."""
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(
        x, other, weight, bias, operation
    )
    return product


def fp8_product(rows: torch.Tensor, weight: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
    """Return ``rows W^T`` of float8 ``[M, K]`` and ``[N, K]``, bfloat16 ``[M, N]``.

    ``one`` is a scale of 1. The public function is not compiled by torch 2.10
    (pytorch/pytorch#180604).
    """
    columns = weight.t()
    if hasattr(torch, "_scaled_mm"):
        return torch._scaled_mm(
            rows, columns, one, one, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    tensorwise = F.ScalingType.TensorWise
    return F.scaled_mm(
        rows,
        columns,
        one,
        tensorwise,
        one,
        tensorwise,
        output_dtype=torch.bfloat16,
        use_fast_accum=True,
    )


def chosen_kernel(q: torch.Tensor, mask: torch.Tensor | None) -> str:
    """Return which kernel torch's attention chooses for a query ``[B, H, T, d]`` like this.

    The public ``can_use_*`` functions leave out which one it prefers: ``unknown`` then.
    """
    if not hasattr(torch, "_fused_sdp_choice"):
        return "unknown"
    return SDPBackend(torch._fused_sdp_choice(q, q, q, attn_mask=mask)).name.lower()


def compiler_options() -> set[str]:
    """Return the names of the options of torch's compiler; none where it does not say."""
    try:
        import torch._inductor  # takes a second

        return set(torch._inductor.list_options())
    except (ImportError, AttributeError):
        return set()


def mark_dynamic(tensor: torch.Tensor, dimension: int) -> None:
    """Have the compiler take any size of a dimension; without it, each size is compiled.

    It is documented, but nowhere public.
    """
    try:
        from torch._dynamo import mark_dynamic
    except ImportError:
        return
    mark_dynamic(tensor, dimension)
