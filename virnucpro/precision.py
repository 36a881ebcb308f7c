"""The precisions that encoders compute in: one row of a table each.

To add a precision, add its row. The command line, the configuration, the tests and the measurements
read this table. A precision that is more than a cast of all weights also needs a function that
prepares a model: name it in :data:`virnucpro.compute.arithmetic.PREPARATIONS`.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from virnucpro.contracts import Device
from virnucpro.errors import UsageError

AUTO = "auto"
Capability = tuple[int, int]


@dataclass(frozen=True)
class Precision:
    """One precision, and what is known about it.

    Attributes:
        name: what users write.
        dtype: name of the torch type of the weights, for example ``bfloat16``.
        linear_layers: ``cast`` where the linear layers have that type too; otherwise a key of
            :data:`virnucpro.compute.arithmetic.PREPARATIONS`, which replaces them.
        capability: CUDA compute capability below which a GPU is refused; (0, 0) for none.
        automatic_from: capability from which ``auto`` may choose it; None for never.
        on_cpu: ``fast`` where the processor has instructions for it (:func:`emulated_on_cpu`),
            ``slow`` (allowed, but not measured unless asked for), or ``refused``.
        needs_compiling: where blocks run as written, it is slower than 16 bits on a GPU.
        least_cosine: cosine of an embedding and the same one in fp32, at least.
        largest_difference: between a number of an embedding and the same one in fp32, for models
            of ordinary weights (a number is between -10 and 10 or so).
        largest_score_difference: between a score and the same one in fp32; scores are 0 to 1.
        least_same_calls: share of frames that keep the call they have in fp32, with the tiny
            models of the reference data, which average less than the released ones.
    """

    name: str
    dtype: str
    automatic_from: Capability | None
    least_cosine: float
    largest_difference: float
    largest_score_difference: float
    least_same_calls: float
    capability: Capability = (0, 0)
    linear_layers: str = "cast"
    on_cpu: Literal["fast", "slow", "refused"] = "fast"
    needs_compiling: bool = False


_ROWS = (
    # Only the order of sums differs between two programs or devices (cosine 1 - 1e-6).
    Precision(
        name="fp32",
        dtype="float32",
        automatic_from=(0, 0),
        least_cosine=0.99999,
        largest_difference=1e-5,
        largest_score_difference=1e-3,
        least_same_calls=1.0,
    ),
    # Ampere (8.0) is the first with bf16 tensor cores (CUDA programming guide). Every state is
    # rounded to 8 bits: some 1e-4 of the cosine over 36 layers.
    Precision(
        name="bf16",
        dtype="bfloat16",
        capability=(8, 0),
        automatic_from=(8, 0),
        least_cosine=0.995,
        largest_difference=0.1,
        largest_score_difference=0.03,
        least_same_calls=0.985,
    ),
    # Volta (7.0) is the first with fp16 tensor cores; older GPUs compute in it without them.
    # On a CPU it is slow with either of the libraries that torch calls.
    Precision(
        name="fp16",
        dtype="float16",
        automatic_from=(7, 0),
        on_cpu="slow",
        least_cosine=0.995,
        largest_difference=0.01,
        largest_score_difference=0.03,
        least_same_calls=1.0,
    ),
    # Ada (8.9) is the first with 8-bit tensor cores; then Hopper and Blackwell. What is not in
    # 8 bits is bfloat16. Inputs of every product are rounded to 4 bits: 3e-3 of the cosine over 36
    # layers of random weights, measured on a CPU. It loses too much to be chosen unasked.
    Precision(
        name="fp8",
        dtype="bfloat16",
        linear_layers="fp8",
        capability=(8, 9),
        automatic_from=None,
        on_cpu="refused",
        least_cosine=0.98,
        largest_difference=0.3,
        largest_score_difference=0.3,
        least_same_calls=0.89,
        needs_compiling=True,
    ),
)
PRECISIONS: Mapping[str, Precision] = {row.name: row for row in _ROWS}
PRECISION_CHOICES = (AUTO, *PRECISIONS)  # of the option --precision and the configuration


def supports(device: Device, precision: str) -> bool:
    """Return whether ``device`` may compute in ``precision``. A processor may emulate it."""
    row = PRECISIONS[precision]
    if device.kind == "cpu":
        return row.on_cpu != "refused"
    return device.capability >= row.capability


def emulated_on_cpu(precision: str) -> bool:
    """Return whether this processor has no instructions for the type of a precision.

    That is what oneDNN may use, so its ``ONEDNN_MAX_CPU_ISA`` counts.
    """
    import torch

    dtype = PRECISIONS[precision].dtype
    if dtype == "float32":
        return False
    if not torch._C._has_mkldnn:
        return True
    if dtype == "float16":
        return not bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    # With AVX-512 alone, oneDNN says yes and converts: a training takes three times as long.
    x86 = platform.machine() in ("x86_64", "AMD64")
    if x86 and not torch.cpu._is_avx512_bf16_supported():
        return True
    return not bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def emulation_warnings(precision: str, devices: Sequence[Device]) -> list[str]:
    """Return a sentence if a run computes on a processor that emulates its precision."""
    if all(device.kind != "cpu" for device in devices) or not emulated_on_cpu(precision):
        return []
    return [
        f"this processor has no instructions for {precision}, so a run takes 3 to 8 times as long "
        f"as in fp32: use --precision fp32"
    ]


def choose_precision(requested: str, devices: Sequence[Device]) -> str:
    """Return one precision for the whole run, which every chosen device supports.

    ``auto`` is bf16 where every GPU has it, else fp16 where every GPU has that, else fp32; on the
    CPU it is fp32, as the original computes. fp8 has to be asked for.

    Raises:
        UsageError: a device does not have the precision (exit 64).
    """
    if requested == AUTO:
        gpus = [device for device in devices if device.kind == "cuda"]
        lowest = min((gpu.capability for gpu in gpus), default=(0, 0))
        usable = {
            row.automatic_from: row.name
            for row in _ROWS
            if row.automatic_from is not None and lowest >= row.automatic_from
        }
        return usable[max(usable)]
    for device in devices:
        if not supports(device, requested):
            name = "a CPU" if device.kind == "cpu" else device.name
            others = [other for other in PRECISIONS if supports(device, other)]
            raise UsageError(
                f"{name} has no fast {requested}: use --precision {' or '.join(others)}, or GPUs "
                f"that have it"
            )
    return requested
