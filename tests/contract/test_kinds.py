"""What kind of trouble an error is."""

from __future__ import annotations

import pytest
import torch

from virnucpro.errors import OutputError
from virnucpro.executors.faults import fault


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("bad letter\nand a trace"), "data"),
        (RuntimeError("shapes do not fit"), "data"),
        (MemoryError(), "memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "memory"),
        (torch.AcceleratorError("CUDA error: device-side assert triggered"), "device"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"), "device"),
        (OutputError("the disk is full"), "fatal"),
    ],
)
def test_errors_are_told_apart(error: Exception, kind: str) -> None:
    told = fault(None, error)
    assert (told.kind, told.error) == (kind, type(error).__name__)
    assert "\n" not in told.message
    assert told.message
