"""The devices that a run computes on, found without opening one.

GPUs are read from NVML, the management library of the driver: a CUDA context in the parent would
take memory on the GPU for the whole run and would break in the workers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from virnucpro.contracts import Device
from virnucpro.errors import DeviceError, UsageError
from virnucpro.settings import MachineSettings

MASK = "CUDA_VISIBLE_DEVICES"


def host_threads() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> list[Device]:
    """Return the GPUs and MIG devices that ``CUDA_VISIBLE_DEVICES`` leaves visible, in its order.

    The list is empty if there is no NVIDIA driver or torch was built without CUDA. Without a mask,
    all MIG devices are in it: CUDA would show a process only one of them, but each worker is a
    process of its own. The mask is read as CUDA does: an invalid entry hides itself and all behind
    it, an entry that occurs twice hides everything, and a GPU in MIG mode stands for its first MIG
    device. Numbers are those of NVML and nvidia-smi.
    """
    installed = _installed_gpus()
    if installed:
        import torch

        if torch.version.cuda is None:
            return []
    visible: list[Device] = []
    if (mask := os.environ.get(MASK)) is None:
        visible = [device for *_, devices in installed for device in devices]
    for entry in (part.strip() for part in mask.split(",")) if mask else ():
        if entry.startswith("MIG-"):
            found = [d for *_, devices in installed for d in devices if d.uuid.startswith(entry)]
        else:
            start = entry if entry.startswith("GPU-") else "no UUID"
            found = []
            for number, uuid, devices in installed:
                if entry == number or uuid.startswith(start):
                    found += devices[:1]
        if len(found) != 1:
            break
        if found[0] in visible:
            return []
        visible += found
    return [replace(device, index=index) for index, device in enumerate(visible)]


def _installed_gpus() -> list[tuple[str, str, list[Device]]]:
    """Return all GPUs of this machine that answer, in NVML's order, which is that of the PCI bus.

    Each has its number, its UUID, and what a worker can compute on: itself, or its MIG devices.
    """
    import pynvml as nvml

    found = []
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        for number in range(nvml.nvmlDeviceGetCount()):
            with suppress(nvml.NVMLError):  # it fell off the bus: the others are used without it
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
                major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
                uuid, parts = nvml.nvmlDeviceGetUUID(handle), [handle]
                with suppress(nvml.NVMLError):  # the GPU, or the driver, does not know MIG
                    if nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE:
                        parts = _mig_handles(nvml, handle)
                devices = [
                    Device(
                        "cuda",
                        name=nvml.nvmlDeviceGetName(part),
                        uuid=nvml.nvmlDeviceGetUUID(part),
                        memory=int(nvml.nvmlDeviceGetMemoryInfo(part).total),
                        capability=(int(major), int(minor)),
                    )
                    for part in parts
                ]
                found.append((str(number), uuid, devices))
    finally:
        nvml.nvmlShutdown()
    return found


def _mig_handles(nvml: Any, gpu: Any) -> list[Any]:
    """Return the MIG devices that were created on a GPU, which has places for more."""
    handles = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        with suppress(nvml.NVMLError):
            handles.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place))
    return handles


def choose_devices(
    machine: MachineSettings, gpus: Sequence[Device] | None = None
) -> tuple[Device, ...]:
    """Return the devices of a run: the CPU, or some of the ``gpus`` (None: the visible ones).

    Raises:
        UsageError: a GPU is malformed, named twice or unknown (exit 64); lists the visible ones.
        DeviceError: a GPU was asked for and there is none (exit 4).
    """
    if machine.cpu_workers is not None and (machine.gpus or machine.device not in ("auto", "cpu")):
        raise UsageError("--cpu-workers computes on the CPU: leave out --gpus and --device")
    if machine.device == "cpu" and machine.gpus:
        raise UsageError("--device cpu and --gpus contradict each other: leave one out")
    if machine.cpu_workers is not None or machine.device == "cpu":
        devices: Sequence[Device] = [Device("cpu")] * (machine.cpu_workers or 1)
    else:
        devices = _choose_gpus(machine, visible_gpus() if gpus is None else gpus)
    if machine.compile == "always" and devices[0].kind == "cpu":
        raise UsageError(
            "compiling is for GPUs: on the CPU leave out --compile always, or device.compile in the"
            " configuration"
        )
    share = max(1, (machine.threads or host_threads()) // len(devices))
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
        is_uuid = name.startswith(("GPU-", "MIG-"))
        found = [g for g in gpus if str(g.index) == name or (is_uuid and g.uuid.startswith(name))]
        if len(found) != 1:
            visible = ", ".join(f"{gpu.index} ({gpu.name}, {gpu.uuid})" for gpu in gpus)
            raise UsageError(f"GPU {name!r} is not there; visible are {visible}")
        if found[0] in chosen:
            raise UsageError(f"GPU {name!r} is named twice: leave one out")
        chosen += found
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
    return [name.strip() for name in text.split(",")]


GpuReading = tuple[int | None, int | None, int | None, int | None, float | None]
"""State of a GPU: bytes in use and in all, percent of its time, degrees Celsius and watts."""


def read_gpu(device: Device) -> GpuReading | None:
    """Return the state of a GPU; None for a CPU, or where the driver does not answer.

    What the driver does not know (MIG devices have no utilisation, some boards no power) is None.
    """
    if device.kind != "cuda":
        return None
    import pynvml as nvml

    def ask(question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except nvml.NVMLError:
            return None

    ask(nvml.nvmlInit)  # which only counts the calls after the first one
    handle = ask(nvml.nvmlDeviceGetHandleByUUID, device.uuid)
    if handle is None:
        return None
    memory = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    rates = ask(nvml.nvmlDeviceGetUtilizationRates, handle)
    milliwatts = ask(nvml.nvmlDeviceGetPowerUsage, handle)
    return (
        memory and int(memory.used),
        memory and int(memory.total),
        rates and int(rates.gpu),
        ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        milliwatts and milliwatts / 1000,
    )
