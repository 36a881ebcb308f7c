"""Traces of the profiler are summed up by kernel; the one of a GPU is made up in its format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu.trace import flops_of, read_trace, summed


def operation(name, start, length, number, shapes=(), types=()):
    arguments = {"External id": number, "Input Dims": list(shapes), "Input type": list(types)}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start,
            "dur": length, "args": arguments}  # fmt: skip


def kernel(name, start, length, number, kind="kernel"):
    arguments = {"External id": number, "device": 0, "stream": 7, "grid": [4, 1, 1],
                 "block": [128, 1, 1], "registers per thread": 40}  # fmt: skip
    return {"ph": "X", "cat": kind, "name": name, "pid": 0, "tid": 7, "ts": start,
            "dur": length, "args": arguments}  # fmt: skip


@pytest.fixture
def gpu_trace(tmp_path: Path) -> Path:
    bf16 = "c10::BFloat16"
    product = [[7680], [32760, 2560], [2560, 7680], [], []]
    events = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        operation("aten::addmm", 0, 5, 1, product, [bf16, bf16, bf16, "Scalar", "Scalar"]),
        operation("triton_poi_fused_gelu_0", 10, 2, 2, [[32760, 2560], [32760, 2560], []],
                  [bf16, bf16, "Scalar"]),
        operation("aten::_flash_attention_forward", 20, 5, 3, [[195, 168, 40, 64]] * 3, [bf16] * 3),
        kernel("nvjet_hsh_128x256", 100, 2000, 1),
        kernel("triton_poi_fused_gelu_0", 2110, 100, 2),
        kernel("flash_fwd_kernel", 2210.2, 300, 3),
        kernel("nvjet_hsh_128x256", 2560.2, 2000, 1),
        kernel("Memcpy HtoD", 2000, 50, 99, "gpu_memcpy"),
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_kernels_of_a_gpu(gpu_trace: Path) -> None:
    found = summed(read_trace(gpu_trace))
    assert found["timed"] == "kernels"
    assert found["milliseconds"] == 4.45
    assert found["span_milliseconds"] == pytest.approx(4.4602)
    # 10 us before the compiled kernel, 50 us before the last product; 0.2 us do not count.
    assert (found["pauses"], found["pause_milliseconds"]) == (2, 0.06)
    assert found["longest_pauses"][0] == {
        "microseconds": 50.0, "after": "flash_fwd_kernel", "before": "nvjet_hsh_128x256",
    }  # fmt: skip
    product, attention, compiled, copy = found["kernels"]
    assert (product["kind"], product["calls"], product["milliseconds"]) == ("matrix product", 2, 4)
    assert product["shapes"] == "7680 32760x2560 2560x7680"
    flops = 2 * 32760 * 2560 * 7680
    assert product["teraflops_per_second"] == round(flops / 2e-3 / 1e12, 2)
    assert product["registers_per_thread"] == 40
    assert attention["kind"] == "attention"
    assert attention["teraflops_per_second"] == round(4 * 195 * 168 * 168 * 2560 / 300e-6 / 1e12, 2)
    assert compiled["kind"] == "compiled"
    assert compiled["gigabytes_per_second"] == round(2 * 2 * 32760 * 2560 / 100e-6 / 1e9, 2)
    assert (copy["kind"], copy["gigabytes_per_second"]) == ("copy", None)
    assert sum(row["share"] for row in found["kernels"]) == pytest.approx(1, abs=1e-3)
    assert set(found["milliseconds_by_kind"]) == {"matrix product", "attention", "compiled", "copy"}


def test_operations_of_a_cpu_are_counted_without_those_that_they_call(tmp_path: Path) -> None:
    events = [
        operation("aten::linear", 0, 100, 1, [[4, 8], [2, 8]], ["float", "float"]),
        operation("aten::mm", 10, 60, 2, [[4, 8], [8, 2]], ["float", "float"]),
        operation("aten::empty", 20, 10, 3),
        operation("aten::gelu", 100, 30, 4, [[4, 2]], ["float"]),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    found = summed(read_trace(path))
    assert found["timed"] == "operations on the CPU"
    assert found["pauses"] is None
    times = {row["kernel"]: row["milliseconds"] for row in found["kernels"]}
    assert times == {
        "aten::mm": 0.05,
        "aten::linear": 0.04,
        "aten::gelu": 0.03,
        "aten::empty": 0.01,
    }


@pytest.mark.parametrize(
    ("name", "shapes", "flops"),
    [
        ("aten::mm", [[3, 4], [4, 5]], 120),
        ("aten::addmm", [[5], [3, 4], [4, 5]], 120),
        ("aten::_scaled_mm", [[3, 4], [4, 5], [], []], 120),
        ("aten::_addmm_activation", [[5], [3, 4], [4, 5]], 120),
        ("aten::bmm", [[2, 3, 4], [2, 4, 5]], 240),
        ("mkldnn::_linear_pointwise", [[2, 3, 4], [5, 4], [5]], 240),
        ("aten::_scaled_dot_product_flash_attention", [[2, 3, 5, 4]] * 3, 4 * 2 * 3 * 25 * 4),
        ("aten::_flash_attention_forward", [[2, 5, 3, 4]] * 3, 4 * 2 * 3 * 25 * 4),
        ("aten::gelu", [[2, 3]], None),
        ("aten::mm", [], None),
    ],
)  # fmt: skip
def test_operations_of_products_and_attention(name, shapes, flops) -> None:
    assert flops_of(name, shapes) == flops
