"""What workers are called, on the screen and in the log alike."""

from __future__ import annotations

from virnucpro.contracts import Device


def worker_label(worker: int, device: Device) -> str:
    """Return ``GPU 3`` for a worker on a GPU, else ``CPU 0`` with the worker's own number.

    On a cluster, the name of the node stands before it.
    """
    label = f"GPU {device.index}" if device.kind == "cuda" else f"CPU {worker}"
    return f"{device.host} {label}" if device.host else label


def worker_name(worker: int, device: Device) -> str:
    """Return the label of a worker with the name of its GPU: ``GPU 3 NVIDIA H200``."""
    label = worker_label(worker, device)
    return f"{label} {device.name}" if device.kind == "cuda" else label
