"""Check the GPU and the compilers before anything else is measured on them.

    python -m benchmarks.gpu.machine --json FILE

It multiplies matrices for a while and copies memory, with the clock beside each, and compiles one small
function. Each of these is saved before the next one begins.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import MatrixProduct, time_in_turns
from virnucpro.compute.compiled import COMPILER_ERRORS

COPIED = {"cuda": 4 << 30, "cpu": 1 << 20}  # bytes


def main() -> int:
    """Return 1 where nothing can be compiled on this machine, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    device = torch.device(options.device)
    document: dict[str, Any] = {}

    def save(name: str, figures: dict[str, Any]) -> None:
        document[name] = figures
        options.json.write_text(json.dumps(document, indent=1) + "\n")
        print(name, json.dumps(figures), flush=True)

    def rate(work: Callable[[], object], amount: float) -> dict[str, Any]:
        work()
        *_, figures = time_in_turns({"work": work}, device, 3, short=True)
        return {"per_second": amount / figures["work"]["milliseconds"] * 1e3, **figures["work"]}

    for precision in ("bf16", "fp32") if options.device == "cuda" else ("fp32",):
        product = MatrixProduct(device, precision)
        save(f"operations in {precision}", rate(product, product.flops))
    source = torch.empty(COPIED[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    save("bytes read and written", rate(lambda: target.copy_(source), 2 * source.numel()))
    compiling = _compiling(device)
    save("compiling", compiling)
    return int("failed" in compiling)


def _compiling(device: torch.device) -> dict[str, Any]:
    """Compile a small function. On a CPU only its graph is made."""
    started = time.perf_counter()
    x = torch.randn(64, 64, device=device)
    backend = "inductor" if device.type == "cuda" else "eager"
    function = torch.compile(lambda x: torch.nn.functional.gelu(x) + x.sum(), backend=backend)
    try:
        function(x).cpu()
    except COMPILER_ERRORS as error:
        return {"failed": f"{type(error).__name__}: {error}"[:2000]}
    return {"seconds": round(time.perf_counter() - started, 2)}


if __name__ == "__main__":
    sys.exit(main())
