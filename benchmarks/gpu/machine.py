"""Check the GPU and the compilers before anything else is measured on them.

    python -m benchmarks.gpu.machine --json FILE

It reads the GPUs and the driver, multiplies matrices for a while and copies memory, with the clock
beside each, and compiles one small function. Each of these is saved before the next one begins.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.timing import time_variants
from virnucpro.benchmark.clocks import ClockSampler, Interval
from virnucpro.benchmark.machine import MatrixProduct, machine_facts, synchronise
from virnucpro.compute.compiled import COMPILER_ERRORS
from virnucpro.contracts import Device
from virnucpro.devices import visible_gpus

COPIED = {"cuda": 4 << 30, "cpu": 1 << 20}  # bytes


def main() -> int:
    """Return 1 where nothing can be compiled on this machine, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--precisions", default="bf16,fp32")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    device = torch.device(options.device)
    document: dict[str, Any] = {}

    def save(**more: Any) -> None:
        document.update(more)
        options.json.write_text(json.dumps(document, indent=1) + "\n")
        print(json.dumps(more, indent=1), flush=True)

    gpus = visible_gpus()
    shown = gpus[0] if device.type == "cuda" and gpus else Device("cpu")
    save(machine=machine_facts(shown), compilers=_compilers())
    if device.type == "cuda":
        save(gpu=_gpu_facts(device))
    products: dict[str, Any] = {}
    for precision in options.precisions.split(","):
        products[precision] = _product(device, precision)
        save(products=products)
    save(copying=_copying(device))
    compiling = _compiling(device)
    save(compiling=compiling)
    return int("failed" in compiling)


def _compilers() -> dict[str, Any]:
    """Return what Triton needs to compile: itself, a C compiler and the headers of Python."""
    try:
        import triton

        version = triton.__version__
    except ImportError:
        version = None
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return {
        "triton": version,
        "c_compiler": shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"),
        "python_headers": header.exists(),
    }


def _gpu_facts(device: torch.device) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "memory": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "capability": [properties.major, properties.minor],
        "l2_cache": getattr(properties, "L2_cache_size", None),
        "free_memory": torch.cuda.mem_get_info(device)[0],
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
    }


def _product(device: torch.device, precision: str) -> dict[str, Any]:
    """Return the rate of a matrix product that is sustained, in several calls."""
    product = MatrixProduct(device, precision)
    calls = []
    with ClockSampler(device) as sampler:
        for _ in range(3):
            started = time.perf_counter()
            product()
            synchronise(device)
            calls.append(Interval(started, time.perf_counter()))
    rates = [round(product.flops / call.seconds / 1e12, 3) for call in calls]
    seconds = [round(call.seconds, 4) for call in calls]
    return {"teraflops_per_second": rates, "seconds": seconds, **sampler.during(calls)}


def _copying(device: torch.device) -> dict[str, Any]:
    """Return the rate at which the memory of the device is read and written."""
    source = torch.empty(COPIED[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    figures = time_variants({"copy": lambda: target.copy_(source)}, device, 3)["copy"]
    rate = 2 * source.numel() / figures["milliseconds"] / 1e6
    return figures | {"gigabytes_per_second": round(rate, 1)}


def _compiling(device: torch.device) -> dict[str, Any]:
    """Compile a small function. On a CPU only its graph is made."""
    started = time.perf_counter()
    x = torch.randn(64, 64, device=device)
    try:
        function = torch.compile(
            lambda x: torch.nn.functional.gelu(x) * 2 + x.sum(-1, keepdim=True),
            fullgraph=True,
            backend="inductor" if device.type == "cuda" else "eager",
        )
        function(x)
        synchronise(device)
    except COMPILER_ERRORS as error:
        return {"failed": f"{type(error).__name__}: {error}"[:2000]}
    return {"seconds": round(time.perf_counter() - started, 2)}


if __name__ == "__main__":
    sys.exit(main())
