"""The devices that a run computes on, found without opening one.

GPUs are read from NVML, the management library of the driver: a CUDA context in the parent would
take memory on the GPU for the whole run and would break in the workers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from virnucpro.contracts import Device
from virnucpro.errors import DeviceError, UsageError
from virnucpro.settings import MachineSettings


def host_threads() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> list[Device]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves visible, numbered in its order.

    The list is empty if there is no NVIDIA driver or torch was built without CUDA.
    """
    gpus = _installed_gpus()
    if gpus:
        import torch

        if torch.version.cuda is None:
            return []
    mask = os.environ.get("CUDA_VISIBLE_DEVICES")
    if mask is None:
        visible = gpus
    else:
        visible = []
        for name in (part.strip() for part in mask.split(",")):
            matching = _matching_gpus(name, gpus)
            if len(matching) != 1:
                break  # like CUDA: an invalid entry hides itself and all behind it
            visible += matching
    return [replace(gpu, index=index) for index, gpu in enumerate(visible)]


def _installed_gpus() -> list[Device]:
    """Return all GPUs of this machine that answer, numbered as NVML does."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        read = (read_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
        return [gpu for gpu in read if gpu is not None]
    finally:
        pynvml.nvmlShutdown()


def read_gpu(nvml: Any, index: int) -> Device | None:
    """Return one GPU, or None if it fell off the bus: the others are used without it."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name, uuid = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetUUID(handle)
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle).total
    except nvml.NVMLError:
        return None
    return Device(
        "cuda",
        index,
        name if isinstance(name, str) else name.decode(),  # bytes in older versions of pynvml
        uuid if isinstance(uuid, str) else uuid.decode(),
        int(memory),
        (int(major), int(minor)),
    )


def choose_devices(machine: MachineSettings, gpus: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices of a run: the CPU or some of the visible ``gpus``, one per worker.

    Raises:
        UsageError: a GPU is malformed, named twice or unknown (exit 64); lists the visible ones.
        DeviceError: a GPU was asked for and there is none (exit 4).
    """
    if machine.cpu_workers is not None and (machine.gpus or machine.device not in ("auto", "cpu")):
        raise UsageError("--cpu-workers computes on the CPU: leave out --gpus and --device")
    if machine.device == "cpu" and machine.gpus:
        raise UsageError("--device cpu and --gpus contradict each other: leave one out")
    threads = machine.threads or host_threads()
    devices: Sequence[Device]
    if machine.cpu_workers is not None or machine.device == "cpu":
        devices = [Device("cpu")] * (machine.cpu_workers or 1)
    else:
        devices = _choose_gpus(machine, gpus)
    if machine.compile == "always" and devices[0].kind == "cpu":
        raise UsageError(
            "compiling is for GPUs: on the CPU leave out --compile always, or device.compile in the"
            " configuration"
        )
    share = max(1, threads // len(devices))
    return tuple(replace(device, threads=share) for device in devices)


def _choose_gpus(machine: MachineSettings, gpus: Sequence[Device]) -> Sequence[Device]:
    """Return the GPUs that ``--gpus`` or ``--device`` name; the CPU if that is allowed instead."""
    names = _gpu_names(machine)
    if not gpus:
        if machine.device == "auto" and names is None and machine.fallback_to_cpu:
            return [Device("cpu")]
        raise DeviceError(
            "no usable NVIDIA GPU found: check nvidia-smi, CUDA_VISIBLE_DEVICES and that this "
            "torch is a CUDA build, or compute on the CPU with --device cpu"
        )
    if names is None:
        return gpus[: machine.max_workers]
    chosen = []
    for name in names:
        matching = _matching_gpus(name, gpus)
        if len(matching) != 1:
            visible = ", ".join(f"{gpu.index} ({gpu.name}, {gpu.uuid})" for gpu in gpus)
            raise UsageError(f"GPU {name} is not there; visible are {visible}")
        chosen.append(matching[0])
    return chosen[: machine.max_workers]


def _gpu_names(machine: MachineSettings) -> list[str] | None:
    """Return the indices and UUIDs in ``--gpus`` or ``--device``; None if they name no GPU."""
    text, device = machine.gpus, machine.device
    if text is None:
        if device in ("auto", "cpu", "cuda"):
            return None
        if not (device.startswith(("cuda:", "GPU-", "MIG-")) or device.isdigit()):
            raise UsageError(
                f"--device {device}: expected auto, cpu, cuda, cuda:N, cuda:0,2, a number or the "
                f"UUID of a GPU"
            )
        text = device.removeprefix("cuda:")
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not (name.isascii() and name.isdigit()) and not name.startswith(("GPU-", "MIG-")):
            raise UsageError(
                f"GPU list {text!r}: {name!r} is neither an index nor a UUID; "
                f"write for example --gpus 0,1,2"
            )
    if len(set(names)) != len(names):
        raise UsageError(f"GPU list {text!r} names a GPU twice: leave one out")
    return names


def _matching_gpus(name: str, gpus: Sequence[Device]) -> list[Device]:
    """Return the GPUs whose index is ``name`` or whose UUID begins with it."""
    return [gpu for gpu in gpus if str(gpu.index) == name or (name and gpu.uuid.startswith(name))]
