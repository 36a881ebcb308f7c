"""Which kind of failure an exception is."""

from __future__ import annotations

import pytest
import torch

from virnucpro.errors import OutputError
from virnucpro.executors.failures import describe_failure


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("bad letter\nand a trace"), "data"),
        (RuntimeError("shapes do not fit"), "data"),
        (MemoryError(), "memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "memory"),
        (torch.AcceleratorError("CUDA error: device-side assert triggered"), "device"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"), "device"),
        (OutputError("the disk is full"), "run"),
    ],
)
def test_errors_are_told_apart(error: Exception, kind: str) -> None:
    failure = describe_failure(error)
    assert (failure.kind, failure.error) == (kind, type(error).__name__)
    assert "\n" not in failure.message
    assert failure.message
