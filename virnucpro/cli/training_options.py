"""The options that say where a network is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import virnucpro.cli.shared as shared
from virnucpro.contracts import Device
from virnucpro.errors import UsageError
from virnucpro.settings import MachineSettings


def training_device_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add --multi-gpu, --gpu-ids, --processes and --threads to a command."""
    for option in (
        shared.threads_option,
        shared.option("--processes", shared.COUNT, "Train on the CPU, in N processes."),
        shared.option("--gpu-ids LIST", str, "Train on these GPUs, such as 0,1, or their UUIDs."),
        shared.option(
            "--multi-gpu", bool, "Train on every visible GPU instead of one.", default=None
        ),
    ):
        command = option(command)
    return command


def training_devices(
    options: Mapping[str, Any], threads: int | None, device: str | None = None
) -> tuple[Device, ...]:
    """Return one GPU or the CPU, unless the options ask for more; ``device`` is None for any.

    Raises:
        UsageError: the options contradict each other.
    """
    from virnucpro.devices import choose_devices, visible_gpus

    multi_gpu, gpu_ids, processes = (
        options[name] for name in ("multi_gpu", "gpu_ids", "processes")
    )
    if processes and (multi_gpu or gpu_ids):
        raise UsageError("--processes trains on the CPU: leave out --multi-gpu and --gpu-ids")
    machine = MachineSettings(
        device=device or ("cuda" if multi_gpu and not gpu_ids else "auto"),
        gpus=gpu_ids,
        cpu_workers=processes,
        max_workers=None if multi_gpu or gpu_ids else 1,
        threads=threads,
    )
    return choose_devices(machine, visible_gpus())
