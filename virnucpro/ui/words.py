"""What workers and tasks are called, on the screen and in the log alike."""

from __future__ import annotations

from virnucpro.contracts import Device, Task


def label(worker: int, device: Device) -> str:
    """What a worker is called: ``GPU 3``, or ``CPU 0`` by its own number."""
    return f"GPU {device.index}" if device.kind == "cuda" else f"CPU {worker}"


def full_label(worker: int, device: Device) -> str:
    """``GPU 3 NVIDIA H200``."""
    name = label(worker, device)
    return f"{name} {device.name}" if device.kind == "cuda" else name


def piece(task: Task) -> str:
    """A task, by the file it reads where it is a span: ``output_7.fa[3000:4000]``."""
    if task.span is None or not task.inputs:
        return task.name
    return f"{task.inputs[0].name}[{task.span[0]}:{task.span[1]}]"
