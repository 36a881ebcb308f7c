"""Check the GPU and the compilers before anything else is measured on them.

    python -m benchmarks.gpu.machine --json FILE

It multiplies matrices for a while and copies memory, with the clock beside each, and compiles one small
function. Each of these is saved before the next one begins.
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
from virnucpro.benchmark.machine import MatrixProduct, machine_facts, synchronise
from virnucpro.compute.compiled import COMPILER_ERRORS
from virnucpro.contracts import Device
from virnucpro.devices import visible_gpus

COPIED = {"cuda": 4 << 30, "cpu": 1 << 20}  # bytes
PRECISIONS = {"cuda": ("bf16", "fp32"), "cpu": ("fp32",)}


def main() -> int:
    """Return 1 where nothing can be compiled on this machine, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    device = torch.device(options.device)
    gpus = visible_gpus() if device.type == "cuda" else []
    document: dict[str, Any] = {
        "machine": machine_facts(gpus[0] if gpus else Device("cpu")),
        # Triton needs a C compiler and the headers of Python.
        "c_compiler": shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"),
        "python_headers": (Path(sysconfig.get_path("include")) / "Python.h").exists(),
    }

    def save(name: str, figures: dict[str, Any]) -> None:
        document[name] = figures
        options.json.write_text(json.dumps(document, indent=1) + "\n")
        print(name, json.dumps(figures), flush=True)

    for precision in PRECISIONS[device.type]:
        save(f"product in {precision}", _product(device, precision))
    save("copying", _copying(device))
    compiling = _compiling(device)
    save("compiling", compiling)
    return int("failed" in compiling)


def _product(device: torch.device, precision: str) -> dict[str, Any]:
    """Return the rate of a matrix product that is sustained."""
    product = MatrixProduct(device, precision)
    figures = time_variants({"product": product}, device, 3)["product"]
    return figures | {"teraflops_per_second": product.flops / figures["milliseconds"] / 1e9}


def _copying(device: torch.device) -> dict[str, Any]:
    """Return the rate at which the memory of the device is read and written."""
    source = torch.empty(COPIED[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    figures = time_variants({"copy": lambda: target.copy_(source)}, device, 3)["copy"]
    return figures | {"gigabytes_per_second": 2 * source.numel() / figures["milliseconds"] / 1e6}


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
