"""Read a trace of torch's profiler, and sum it up by kernel.

The trace is the one for Chrome that ``export_chrome_trace`` writes: its names have been the same for
years, other than those of the Python objects. On a GPU the kernels are summed. On a CPU there are
none, and the operations take their place, each without the operations that it calls.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEVICE_KINDS = ("kernel", "gpu_memcpy", "gpu_memset")
# Bytes of a number, by the name that the profiler has for its type.
SIZES = {
    "double": 8, "float": 4, "c10::BFloat16": 2, "c10::Half": 2, "c10::Float8_e4m3fn": 1,
    "long int": 8, "int": 4, "bool": 1, "unsigned char": 1, "signed char": 1,
}  # fmt: skip
# The positions of the two factors among the inputs of a matrix product. ``linear`` has its second
# factor transposed.
FACTORS = {
    "mm": (0, 1), "_scaled_mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2),
    "_addmm_activation": (1, 2), "linear": (0, 1), "_linear_pointwise": (0, 1),
}  # fmt: skip
TRANSPOSED = ("linear", "_linear_pointwise")
LARGEST_GAPS = 10  # that are named
LEAST_GAP = 1.0  # microseconds: the least pause between two kernels that is counted


@dataclass(frozen=True)
class TraceEvent:
    """An event with its start and its length in microseconds."""

    name: str
    kind: str
    start: float
    length: float
    thread: str
    arguments: Mapping[str, Any]

    @property
    def end(self) -> float:
        """When it ended, in microseconds."""
        return self.start + self.length

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        """The shapes of its inputs; an empty one for what is not a tensor."""
        found: Sequence[Sequence[int]] = self.arguments.get("Input Dims", ())
        return found


@dataclass
class KernelSum:
    """All calls of a kernel for an operation on the same shapes."""

    kernel: str
    operation: str
    shapes: str
    flops: int | None
    moved_bytes: int | None
    calls: int = 0
    microseconds: float = 0.0
    device: dict[str, Any] = field(default_factory=dict)

    def row(self, total: float) -> dict[str, Any]:
        """Return it for the results; ``total`` is the time of all kernels in microseconds."""
        seconds = self.microseconds / 1e6

        def rate(work: int | None, unit: float) -> float | None:
            return round(work * self.calls / seconds / unit, 2) if work and seconds else None

        return {
            "kernel": self.kernel,
            "operation": self.operation,
            "kind": kind_of(self.kernel, self.operation, self.flops),
            "shapes": self.shapes,
            "calls": self.calls,
            "milliseconds": round(self.microseconds / 1e3, 4),
            "share": round(self.microseconds / total, 4) if total else 0.0,
            "teraflops_per_second": rate(self.flops, 1e12),
            "gigabytes_per_second": None if self.flops else rate(self.moved_bytes, 1e9),
            **self.device,
        }


def read_trace(path: Path) -> list[TraceEvent]:
    """Return the events of a trace that have a length."""
    events = json.loads(path.read_bytes())["traceEvents"]
    return [
        TraceEvent(
            e["name"],
            e.get("cat", ""),
            float(e["ts"]),
            float(e["dur"]),
            f"{e.get('pid')}/{e.get('tid')}",
            e.get("args", {}),
        )
        for e in events
        if e.get("ph") == "X"
    ]


def summed(events: Iterable[TraceEvent]) -> dict[str, Any]:
    """Return the kernels with their time, rate and pauses; the longest in all comes first."""
    events = list(events)
    operations = [e for e in events if e.kind == "cpu_op"]
    kernels = [e for e in events if e.kind in DEVICE_KINDS]
    if kernels:
        by_id = {e.arguments.get("External id"): e for e in operations}
        timed = [(k, by_id.get(k.arguments.get("External id")), k.length) for k in kernels]
    else:
        timed = [(e, e, own) for e, own in _own_times(operations)]
    sums: dict[tuple[str, str, str], KernelSum] = {}
    for event, operation, length in timed:
        name = "" if operation is None else operation.name
        shapes = "" if operation is None else _shape_text(operation.shapes)
        key = (event.name, name, shapes)
        if key not in sums:
            sums[key] = KernelSum(
                *key,
                None if operation is None else flops_of(name, operation.shapes),
                None if operation is None else bytes_of(operation),
                device={
                    key.replace(" ", "_"): event.arguments[key]
                    for key in ("grid", "block", "registers per thread")
                    if key in event.arguments
                },
            )
        sums[key].calls += 1
        sums[key].microseconds += length
    total = sum(s.microseconds for s in sums.values())
    rows = [s.row(total) for s in sorted(sums.values(), key=lambda s: -s.microseconds)]
    by_kind: dict[str, float] = defaultdict(float)
    for row in rows:
        by_kind[row["kind"]] += row["milliseconds"]
    return {
        "timed": "kernels" if kernels else "operations on the CPU",
        "milliseconds": round(total / 1e3, 4),
        "milliseconds_by_kind": {kind: round(ms, 4) for kind, ms in by_kind.items()},
        **_pauses(kernels),
        "kernels": rows,
    }


def _own_times(operations: Iterable[TraceEvent]) -> list[tuple[TraceEvent, float]]:
    """Return each operation with its time without the operations that it called."""
    own: dict[int, float] = {}
    order = sorted(operations, key=lambda e: (e.thread, e.start, -e.length))
    stack: list[int] = []
    for number, event in enumerate(order):
        own[number] = event.length
        while stack and (
            order[stack[-1]].thread != event.thread or order[stack[-1]].end <= event.start
        ):
            stack.pop()
        if stack:
            own[stack[-1]] -= event.length
        stack.append(number)
    return [(order[number], max(0.0, length)) for number, length in own.items()]


def _pauses(kernels: Sequence[TraceEvent]) -> dict[str, Any]:
    """Return the time between kernels; nulls where there are none."""
    if not kernels:
        return dict.fromkeys(
            ("span_milliseconds", "pause_milliseconds", "pauses", "longest_pauses")
        )
    order = sorted(kernels, key=lambda e: e.start)
    previous, pauses = order[0], []
    for event in order[1:]:
        if event.start - previous.end >= LEAST_GAP:
            pauses.append((event.start - previous.end, previous.name, event.name))
        if event.end > previous.end:
            previous = event
    longest = sorted(pauses, reverse=True)[:LARGEST_GAPS]
    return {
        "span_milliseconds": round((previous.end - order[0].start) / 1e3, 4),
        "pause_milliseconds": round(sum(p[0] for p in pauses) / 1e3, 4),
        "pauses": len(pauses),
        "longest_pauses": [
            {"microseconds": round(length, 1), "after": after, "before": before}
            for length, after, before in longest
        ],
    }


def kind_of(kernel: str, operation: str, flops: int | None) -> str:
    """Return what a kernel is for: attention, a matrix product, a compiled or another kernel."""
    names = f"{kernel} {operation}".lower()
    if any(word in names for word in ("attention", "flash", "fmha")):
        return "attention"
    if flops or any(word in names for word in ("gemm", "nvjet", "cutlass")):
        return "matrix product"
    if "triton" in names:
        return "compiled"
    return "copy" if "memcpy" in names or "memset" in names or "copy_" in names else "other"


def flops_of(operation: str, shapes: Sequence[Sequence[int]]) -> int | None:
    """Return the floating-point operations of a matrix product or of attention, else None."""
    name = operation.rpartition("::")[2].split(".")[0]
    if "attention" in name:
        query = next((shape for shape in shapes if len(shape) == 4), None)
        if query is None:
            return None
        # [B, H, T, d] for the public functions, [B, T, H, d] for the kernels below them.
        tokens = query[2] if "dot_product" in name else query[1]
        return 4 * math.prod(query) * tokens
    if name not in FACTORS:
        return None
    left, right = FACTORS[name]
    if len(shapes) <= right or len(shapes[left]) < 2 or len(shapes[right]) < 2:
        return None
    columns = shapes[right][0 if name in TRANSPOSED else -1]
    return 2 * math.prod(shapes[left]) * columns


def bytes_of(operation: TraceEvent) -> int | None:
    """Return the bytes of all tensors that a call names, or None where it names none.

    An operation that is not compiled does not name its result, and a tensor that is read and
    written counts once: the true number is larger.
    """
    total = 0
    types = operation.arguments.get("Input type", ())
    for shape, name in zip(operation.shapes, types, strict=False):
        if name in SIZES and all(isinstance(size, int) for size in shape):
            total += SIZES[name] * math.prod(shape)
    return total or None


def _shape_text(shapes: Sequence[Sequence[int]]) -> str:
    """Return the shapes of the tensors, as in ``32760x2560 2560x7680``."""
    return " ".join("x".join(map(str, shape)) for shape in shapes if shape)
