"""Which devices a run computes on, found without opening one.

GPUs are read from NVML, the driver's management library: a CUDA context in the parent would cost
memory on the GPU for the whole run and would break in the workers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from virnucpro.contracts import Device
from virnucpro.errors import DeviceError, UsageError
from virnucpro.settings import MachineSettings


def host_threads() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> list[Device]:
    """All CUDA devices that ``CUDA_VISIBLE_DEVICES`` leaves visible, in its order.

    Empty where there is no NVIDIA driver or torch was built without CUDA.
    """
    gpus = _installed_gpus()
    if not gpus or not _torch_has_cuda():
        return []
    mask = os.environ.get("CUDA_VISIBLE_DEVICES")
    if mask is None:
        chosen = gpus
    else:
        chosen = []
        for name in (part.strip() for part in mask.split(",")):
            match = [g for g in gpus if str(g.index) == name or (name and g.uuid.startswith(name))]
            if len(match) != 1:
                break  # like CUDA: an invalid entry hides itself and all behind it
            chosen.append(match[0])
    return [_renumbered(gpu, index) for index, gpu in enumerate(chosen)]


def _renumbered(gpu: Device, index: int) -> Device:
    return Device("cuda", index, gpu.name, gpu.uuid, gpu.memory, gpu.capability, gpu.threads)


def _torch_has_cuda() -> bool:
    import torch

    return torch.version.cuda is not None


def _installed_gpus() -> list[Device]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        found = (_gpu_or_none(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
        return [gpu for gpu in found if gpu is not None]
    finally:
        pynvml.nvmlShutdown()


def _gpu_or_none(pynvml: Any, index: int) -> Device | None:
    """One GPU, or None where it fell off the bus: the others go on without it."""
    try:
        return _gpu(pynvml, index)
    except pynvml.NVMLError:
        return None


def _gpu(pynvml: Any, index: int) -> Device:
    gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
    name, uuid = pynvml.nvmlDeviceGetName(gpu), pynvml.nvmlDeviceGetUUID(gpu)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(gpu)
    return Device(
        "cuda",
        index,
        name if isinstance(name, str) else name.decode(),
        uuid if isinstance(uuid, str) else uuid.decode(),
        int(pynvml.nvmlDeviceGetMemoryInfo(gpu).total),
        (int(major), int(minor)),
    )


def choose_devices(machine: MachineSettings, gpus: Sequence[Device]) -> tuple[Device, ...]:
    """The devices of a run, of the visible ``gpus`` or the CPU; one worker each.

    Raises:
        UsageError: malformed, doubled or unknown GPU (exit 64); lists those that are there.
        DeviceError: a GPU was asked for and there is none (exit 4).
    """
    if machine.cpu_workers is not None and (machine.gpus or machine.device not in ("auto", "cpu")):
        raise UsageError("--cpu-workers computes on the CPU: leave out --gpus and --device")
    if machine.device == "cpu" and machine.gpus:
        raise UsageError("--device cpu and --gpus contradict each other: leave one out")
    devices = _chosen(machine, gpus)
    if machine.compile == "always" and devices[0].kind == "cpu":
        raise UsageError(
            "compiling is for GPUs: on the CPU leave out --compile always, or device.compile in the"
            " configuration"
        )
    return devices


def _chosen(machine: MachineSettings, gpus: Sequence[Device]) -> tuple[Device, ...]:
    threads = machine.threads or host_threads()
    selection = machine.gpus if machine.gpus is not None else _selection(machine.device)
    if machine.cpu_workers is not None or machine.device == "cpu":
        workers = machine.cpu_workers or 1
        return (Device("cpu", threads=max(1, threads // workers)),) * workers
    wanted = None if selection is None else _wanted(selection)
    if not gpus:
        if machine.device == "auto" and wanted is None and machine.fallback_to_cpu:
            return (Device("cpu", threads=threads),)
        raise DeviceError(
            "no usable NVIDIA GPU found: check nvidia-smi, CUDA_VISIBLE_DEVICES and that this "
            "torch is a CUDA build, or compute on the CPU with --device cpu"
        )
    chosen = gpus if wanted is None else [_find(name, gpus) for name in wanted]
    chosen = chosen[: machine.max_workers]
    share = max(1, threads // len(chosen))
    return tuple(
        Device("cuda", g.index, g.name, g.uuid, g.memory, g.capability, share) for g in chosen
    )


def _selection(device: str) -> str | None:
    """The GPU list inside a ``--device`` value; None where it names no particular one."""
    if device in ("auto", "cpu", "cuda"):
        return None
    if device.startswith("cuda:"):
        return device[len("cuda:") :]
    if device.isdigit() or device.startswith(("GPU-", "MIG-")):
        return device
    raise UsageError(
        f"--device {device}: expected auto, cpu, cuda, cuda:N, cuda:0,2, a number or a GPU's UUID"
    )


def _wanted(selection: str) -> list[str]:
    names = [name.strip() for name in selection.split(",")]
    for name in names:
        if not (name.isascii() and name.isdigit()) and not name.startswith(("GPU-", "MIG-")):
            raise UsageError(
                f"GPU list {selection!r}: {name!r} is neither an index nor a UUID; "
                f"write for example --gpus 0,1,2"
            )
    if len(set(names)) != len(names):
        raise UsageError(f"GPU list {selection!r} names a GPU twice: leave one out")
    return names


def _find(name: str, gpus: Sequence[Device]) -> Device:
    match = [g for g in gpus if str(g.index) == name or g.uuid.startswith(name)]
    if len(match) != 1:
        there = ", ".join(f"{g.index} ({g.name}, {g.uuid})" for g in gpus)
        raise UsageError(f"GPU {name} is not there; visible are {there}")
    return match[0]
