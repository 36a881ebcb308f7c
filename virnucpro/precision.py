"""The precisions that encoders compute in: one row of a table each.

The command line, the configuration, the tests and the measurements read this table, and
``benchmarks/tolerances.py`` says how near to fp32 each is. A precision that is more than a cast of
all weights also needs a function that :func:`virnucpro.compute.layers.prepare_blocks` calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
        linear_layers: ``cast`` where the linear layers have that type too; otherwise what
            :func:`virnucpro.compute.layers.prepare_blocks` knows.
        capability: CUDA compute capability below which a GPU is refused; (0, 0) for none.
        automatic_from: capability from which ``auto`` may choose it; None for never.
        on_cpu: whether a CPU computes in it, fast or not.
    """

    name: str
    dtype: str
    automatic_from: Capability | None
    capability: Capability = (0, 0)
    linear_layers: str = "cast"
    on_cpu: bool = True


_ROWS = (
    Precision("fp32", "float32", automatic_from=(0, 0)),
    # Ampere (8.0) is the first with bf16 tensor cores (CUDA programming guide). Every state is
    # rounded to 8 bits: some 1e-4 of the cosine over 36 layers.
    Precision("bf16", "bfloat16", automatic_from=(8, 0), capability=(8, 0)),
    # Volta (7.0) is the first with fp16 tensor cores; older GPUs compute in it without them.
    # On a CPU it is slow with either of the libraries that torch calls.
    Precision("fp16", "float16", automatic_from=(7, 0)),
    # Ada (8.9) is the first with 8-bit tensor cores; then Hopper and Blackwell. What is not in
    # 8 bits is bfloat16, such as DNABERT-S. Inputs of every product are rounded to 4 bits: 3e-3 of
    # the cosine over 36 layers of random weights, measured on a CPU. It loses too much to be chosen
    # unasked.
    Precision("fp8", "bfloat16", None, capability=(8, 9), linear_layers="fp8", on_cpu=False),
)
PRECISIONS: Mapping[str, Precision] = {row.name: row for row in _ROWS}
PRECISION_CHOICES = (AUTO, *PRECISIONS)  # of the option --precision and the configuration


def supports(device: Device, precision: str) -> bool:
    """Return whether ``device`` may compute in ``precision``. A processor may emulate it."""
    row = PRECISIONS[precision]
    return row.on_cpu if device.kind == "cpu" else device.capability >= row.capability


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
