"""Time work on a device in turns, and the best that the arithmetic of this device can do."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import torch

from virnucpro.compute.layers import torch_dtype
from virnucpro.devices import visible_gpus

# Sides of the square matrices: 1.1 TFLOP on a GPU; on a CPU 2 GFLOP, which take two seconds where it
# emulates bf16 with AVX2 alone.
SIDE = {"cuda": 8192, "cpu": 1024}
# A GPU lowers its clock within tenths of a second where it meets its power limit, so a shorter
# measurement shows a rate that no model can have. A CPU needs this long for a single product.
SUSTAINED_SECONDS = {"cuda": 0.3, "cpu": 0.0}
PACKAGES = ("torch", "triton", "numpy", "tokenizers", "transformers", "fair-esm")


def machine_facts() -> dict[str, Any]:
    """Return what a reader needs to judge a measurement on this machine."""
    gpus = [f"{gpu.name}, {gpu.memory} bytes" for gpu in visible_gpus()]
    facts = {"gpus": gpus, "threads": torch.get_num_threads(), "cuda": torch.version.cuda}
    facts |= {"load_average": os.getloadavg()[0], "python": platform.python_version()}
    if platform.system() == "Linux":
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        facts["cpu"] = next((line for line in lines if line.startswith("model name")), "")
    return facts | {d.name: d.version for d in metadata.distributions() if d.name in PACKAGES}


def time_in_turns(
    works: Mapping[str, Callable[[], object]], device: torch.device, rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Return the seconds of a call of each work in each round, by its name.

    Works take turns, so a machine that is slow for a while is slow for all of them. There are at
    least ``rounds`` rounds, and more until the calls took ``seconds`` per work on average. The works
    have been called before.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    begun, done = time.perf_counter(), 0
    while done < rounds or time.perf_counter() - begun < seconds * len(works):
        for name, work in works.items():
            started = time.perf_counter()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times[name].append(time.perf_counter() - started)
        done += 1
    return times


def ratio(others: Sequence[float], own: Sequence[float]) -> float | None:
    """Return the median ratio over the rounds, or None where one was not timed.

    A slow moment of the machine meets both in the same round.
    """
    if not others or not own:
        return None
    return median(other / one for other, one in zip(others, own, strict=True))


class MatrixProduct:
    """A large square matrix product at one precision, repeated for a while.

    Attributes:
        flops: the floating-point operations of a call.
    """

    def __init__(self, device: torch.device, precision: str) -> None:
        """Find how many products take ``SUSTAINED_SECONDS``."""
        side, dtype = SIDE[device.type], torch_dtype(precision)
        self._a, self._b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        self._out, self._count = torch.empty_like(self._a), 1
        _, seconds = time_in_turns({"product": self}, device, 2, 0.0)["product"]  # warm
        self._count = max(1, math.ceil(SUSTAINED_SECONDS[device.type] / seconds))
        self.flops = 2 * side**3 * self._count

    def __call__(self) -> None:
        """Start it. On a GPU it is finished when the device is synchronised."""
        with torch.inference_mode():
            for _ in range(self._count):
                torch.mm(self._a, self._b, out=self._out)
