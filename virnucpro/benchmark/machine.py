"""Describe the machine, and measure the best its arithmetic can do."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import torch

from virnucpro.compute.arithmetic import torch_dtype
from virnucpro.contracts import Device, Json
from virnucpro.precision import PRECISIONS, emulated_on_cpu, supports
from virnucpro.version import __version__

T = TypeVar("T")
# Sides of the square matrices: up to 1.1 TFLOP on a GPU, 17 GFLOP on a CPU.
SMALLEST_SIDE = 128
SIDE = {"cuda": 8192, "cpu": 2048}
# From here on a product can be timed. That of twice the side took up to 27 times as long (bf16 from
# 512 to 1,024 on a CPU with AVX2 alone), which is less than two seconds then.
TIMEABLE_SECONDS = 0.05
# A GPU lowers its clock within tenths of a second where it meets its power limit, so a shorter
# measurement shows a rate that no model can have. A CPU needs this long for a single product.
SUSTAINED_SECONDS = {"cuda": 0.3, "cpu": 0.0}
PACKAGES = ("torch", "transformers", "fair-esm", "tokenizers", "numpy")
CPUINFO = Path("/proc/cpuinfo")


def machine_facts(device: Device) -> dict[str, Json]:
    """Return what a reader needs to judge a measurement on this machine."""
    facts: dict[str, Json] = {
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "device": device.name,
        "device_memory": device.memory,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cuda": torch.version.cuda,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "emulated": _emulated(device),
        "virnucpro": __version__,
    }
    return facts | {name: package_version(name) for name in PACKAGES}


def _emulated(device: Device) -> list[str]:
    names = [name for name in PRECISIONS if device.kind == "cpu" and supports(device, name)]
    return [name for name in names if emulated_on_cpu(name)]


def package_version(package: str) -> str | None:
    """Return the version of an installed package, or None where it is absent."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    if CPUINFO.is_file():
        for line in CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has finished all of its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class MatrixProduct:
    """A large square matrix product at one precision, repeated for a while.

    Attributes:
        flops: the floating-point operations of a call.
    """

    def __init__(self, device: torch.device, precision: str) -> None:
        """Find how large matrices can be, and how many products take ``SUSTAINED_SECONDS``."""
        side, seconds = SMALLEST_SIDE // 2, 0.0
        self._count = 1
        while side < SIDE[device.type] and seconds < TIMEABLE_SECONDS:
            side *= 2
            self._a, self._b = (
                torch.randn(side, side, device=device).to(torch_dtype(precision)) for _ in range(2)
            )
            self._out = torch.empty_like(self._a)
            seconds = min(self._seconds(device) for _ in range(2))  # the first one loads a library
        self._count = max(1, math.ceil(SUSTAINED_SECONDS[device.type] / seconds))
        self.flops = 2 * side**3 * self._count

    def _seconds(self, device: torch.device) -> float:
        started = time.perf_counter()
        self()
        synchronise(device)
        return time.perf_counter() - started

    def __call__(self) -> None:
        """Start it. On a GPU it is finished when :func:`synchronise` returns."""
        with torch.inference_mode():
            for _ in range(self._count):
                torch.mm(self._a, self._b, out=self._out)


def peak_memory(device: torch.device, work: Callable[[], T]) -> tuple[T, int | None]:
    """Return the result of ``work`` and the bytes of GPU memory that it needs for a while.

    The bytes are those beyond what was allocated before; None on a CPU.
    """
    if device.type != "cuda":
        return work(), None
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    result = work()
    torch.cuda.synchronize(device)
    return result, torch.cuda.max_memory_allocated(device) - before
