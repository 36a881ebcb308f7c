"""How the blocks of a model are prepared for a precision (:mod:`virnucpro.precision`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from virnucpro.compute.compiled import Stack
from virnucpro.compute.fp8 import Fp8Linear, use_fp8_layers
from virnucpro.precision import PRECISIONS

# By ``Precision.linear_layers``: a function that replaces the linear layers of cast blocks.
PREPARATIONS: Mapping[str, Callable[[Stack], None]] = {"fp8": use_fp8_layers}


LINEAR_LAYERS = (nn.Linear, Fp8Linear)  # all that blocks have after their preparation


def torch_dtype(precision: str) -> torch.dtype:
    """Return the type that weights are cast to when they are loaded."""
    dtype: torch.dtype = getattr(torch, PRECISIONS[precision].dtype)
    return dtype


def prepare_blocks(blocks: Stack, precision: str) -> None:
    """Replace the linear layers of ``blocks`` where ``precision`` needs layers of its own kind.

    The weights have been cast to :func:`torch_dtype` before.
    """
    linear_layers = PRECISIONS[precision].linear_layers
    if linear_layers != "cast":
        PREPARATIONS[linear_layers](blocks)
