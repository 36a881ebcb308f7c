"""The one device that profile and benchmark measure on."""

from __future__ import annotations

import os
from dataclasses import replace

from virnucpro.cli.options import config_path
from virnucpro.configuration import Configuration, default_configuration, load_configuration
from virnucpro.contracts import Device
from virnucpro.settings import override


def settings() -> Configuration:
    """Those of ``--config``, or the defaults."""
    path = config_path()
    return load_configuration(path) if path else default_configuration()


def measured_device(device: str | None, gpus: str | None, threads: int | None = None) -> Device:
    """The first of the devices that predict would take; this process is settled on it.

    Nothing of CUDA may have been touched before.

    Raises:
        UsageError: malformed or unknown GPU.
        DeviceError: a GPU was asked for and there is none.
    """
    from virnucpro.devices import choose_devices, visible_gpus

    machine = override(settings().machine, device=device, gpus=gpus, threads=threads)
    found = choose_devices(replace(machine, max_workers=1), visible_gpus())[0]
    if found.kind == "cuda":  # as a worker does
        os.environ["CUDA_VISIBLE_DEVICES"] = found.uuid
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    import torch

    torch.set_num_threads(found.threads)
    return found
