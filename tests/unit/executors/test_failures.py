"""Which kind of failure an exception is."""

from __future__ import annotations

import errno

import pytest
import torch
import torch._dynamo
import torch._inductor.exc
import torch.distributed

from virnucpro.errors import OutputError
from virnucpro.executors.worker import describe_failure


class OutOfResources(Exception):
    """As Triton raises it."""


OutOfResources.__module__ = "triton.runtime.errors"
MISSING_SYMBOL = torch.cuda.DeferredCudaCallError("CUDA call failed lazily at initialization")

# What torch, Triton, Inductor and the libraries of NVIDIA say in a plain RuntimeError.
MEMORY_MESSAGES = [
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.2 GiB",
    "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "NCCL Error 1: unhandled cuda error: Failed to CUDA calloc async 608 bytes: out of memory",
    "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 9999999999 bytes. Error code 12 (Cannot allocate memory)",
    "DefaultCPUAllocator: not enough memory: you tried to allocate 4000000 bytes.",
    "std::bad_alloc",
    'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":1131',
]
DEVICE_MESSAGES = [
    "Triton Error [CUDA]: device kernel image is invalid",
    "out of resource: shared memory, Required: 131072, Hardware limit: 101376.",
    "CUDA error: uncorrectable ECC error encountered",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "cusolver error: CUSOLVER_STATUS_EXECUTION_FAILED, when calling `cusolverDnCreate(handle)`",
    "cuFFT error: CUFFT_INTERNAL_ERROR",
    "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled system error",
    "No CUDA GPUs are available",
    "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
    "The NVIDIA driver on your system is too old (found version 11040).",
    "Internal Triton PTX codegen error: `ptxas` stderr: Value 'sm_101a' is not defined",
    "can't start new thread",
]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *((RuntimeError(message), "memory") for message in MEMORY_MESSAGES),
        *((RuntimeError(message), "device") for message in DEVICE_MESSAGES),
        (ValueError("bad letter\nand a trace"), "data"),
        (RuntimeError("shapes do not fit"), "data"),
        (MemoryError(), "memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "memory"),
        (torch.AcceleratorError("CUDA error: device-side assert triggered"), "device"),
        (OutputError("the disk is full"), "run"),
        (OSError(errno.ENOSPC, "No space left on device"), "run"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
        (ArithmeticError("embedding of nccl_part_0-250 is not finite"), "data"),
        (KeyError("CUDA error"), "data"),
        (OutOfResources("out of resource: shared memory, Required: 131072"), "device"),
        (torch._dynamo.exc.TorchRuntimeError("a compiled block failed"), "device"),
        (torch._inductor.exc.CppCompileError(["c++"], "no such file"), "device"),
        (torch.distributed.DistBackendError("unhandled system error"), "device"),
        (AssertionError("Torch not compiled with CUDA enabled"), "device"),
        (AssertionError(), "data"),
        (MISSING_SYMBOL, "device"),
    ],
)
def test_errors_are_told_apart(error: Exception, kind: str) -> None:
    failure = describe_failure(error)
    assert (failure.kind, failure.error) == (kind, type(error).__name__)
    assert "\n" not in failure.message
    assert failure.message
