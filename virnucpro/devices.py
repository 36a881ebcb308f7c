"""The devices that a run computes on, found without opening one.

GPUs are read from NVML, the management library of the driver: a CUDA context in the parent would
take memory on the GPU for the whole run and would break in the workers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from virnucpro.contracts import Device
from virnucpro.errors import DeviceError, UsageError
from virnucpro.settings import MachineSettings

MASK = "CUDA_VISIBLE_DEVICES"


def host_threads() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class InstalledGpu:
    """A GPU of this machine, and what a worker can compute on: itself, or its MIG devices.

    ``index`` is its number in NVML, which is the order of the PCI bus.
    """

    index: int
    uuid: str
    name: str
    devices: tuple[Device, ...]


def visible_gpus() -> list[Device]:
    """Return the GPUs and MIG devices that ``CUDA_VISIBLE_DEVICES`` leaves visible, in its order.

    The list is empty if there is no NVIDIA driver or torch was built without CUDA. Without a mask,
    all MIG devices are in it: CUDA would show a process only one of them, but each worker is a
    process of its own.
    """
    installed = _installed_gpus()
    if installed:
        import torch

        if torch.version.cuda is None:
            return []
    mask = os.environ.get(MASK)
    if mask is None:
        visible = [device for gpu in installed for device in gpu.devices]
    else:
        visible = _masked(mask, installed)
    return [replace(device, index=index) for index, device in enumerate(visible)]


def _masked(mask: str, installed: Sequence[InstalledGpu]) -> list[Device]:
    """Return the devices that a mask names, read as CUDA does.

    An invalid entry hides itself and all behind it; an entry that occurs twice hides everything. A
    GPU in MIG mode stands for its first MIG device. Numbers are those of NVML and nvidia-smi.
    """
    visible: list[Device] = []
    for entry in (part.strip() for part in mask.split(",")):
        if entry.startswith("MIG-"):
            found = [d for gpu in installed for d in gpu.devices if d.uuid.startswith(entry)]
        elif entry.startswith("GPU-"):
            found = [d for gpu in installed if gpu.uuid.startswith(entry) for d in gpu.devices[:1]]
        else:
            found = [d for gpu in installed if str(gpu.index) == entry for d in gpu.devices[:1]]
        if len(found) != 1:
            break
        if found[0] in visible:
            return []
        visible += found
    return visible


def _installed_gpus() -> list[InstalledGpu]:
    """Return all GPUs of this machine that answer, in NVML's order."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        found = [_read_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [gpu for gpu in found if gpu is not None]
    finally:
        pynvml.nvmlShutdown()


def _read_gpu(nvml: Any, index: int) -> InstalledGpu | None:
    """Return one GPU, or None if it fell off the bus: the others are used without it."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        capability = tuple(map(int, nvml.nvmlDeviceGetCudaComputeCapability(handle)))
        whole = _device(nvml, handle, index, capability)
    except nvml.NVMLError:
        return None
    devices = [whole]
    with suppress(nvml.NVMLError):  # the GPU, or the driver, does not know MIG
        if nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            devices = []
            for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
                with suppress(nvml.NVMLError):  # no MIG device was created in this place
                    part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
                    devices.append(_device(nvml, part, number, capability, whole.name))
    return InstalledGpu(index, whole.uuid, whole.name, tuple(devices))


def _device(
    nvml: Any, handle: Any, index: int, capability: tuple[int, ...], gpu_name: str = ""
) -> Device:
    """Return a GPU, or a MIG device of the GPU ``gpu_name``, whose capability it has."""
    uuid = nvml.nvmlDeviceGetUUID(handle)
    memory = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    name = ""
    with suppress(*([nvml.NVMLError] if gpu_name else [])):
        name = nvml.nvmlDeviceGetName(handle)
    if gpu_name and name in ("", gpu_name):  # as an old driver names it
        name = f"{gpu_name} MIG"
    return Device("cuda", index, name, uuid, memory, (capability[0], capability[1]))


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
    if machine.cpu_workers is not None or machine.device == "cpu":
        devices: Sequence[Device] = [Device("cpu")] * (machine.cpu_workers or 1)
    else:
        devices = _choose_gpus(machine, gpus)
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
        found = [gpu for gpu in gpus if str(gpu.index) == name or gpu.uuid.startswith(name)]
        if len(found) != 1:
            visible = ", ".join(f"{gpu.index} ({gpu.name}, {gpu.uuid})" for gpu in gpus)
            raise UsageError(f"GPU {name} is not there; visible are {visible}")
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


class GpuReading(NamedTuple):
    """State of a GPU at one moment: bytes, percent, degrees Celsius and watts."""

    memory_used: int | None = None
    memory_total: int | None = None
    utilisation: int | None = None
    temperature: int | None = None
    power: float | None = None


class GpuReader:
    """Reads GPUs by UUID. The library is opened at the first reading, and only once.

    What the driver does not know (MIG devices have no utilisation, some boards no power) is None.
    """

    def __init__(self, library: Any = None) -> None:
        """``library`` takes the place of ``pynvml``."""
        self._library = library
        self._opened: bool | None = None

    def read(self, device: Device) -> GpuReading | None:
        """Return the state of a GPU; None for a CPU, or where the driver does not answer."""
        if device.kind != "cuda":
            return None
        if self._library is None:
            import pynvml

            self._library = pynvml
        nvml = self._library
        if self._opened is None:
            self._opened = self._ask(lambda: nvml.nvmlInit() or True) or False
        if not self._opened:
            return None
        handle = self._ask(nvml.nvmlDeviceGetHandleByUUID, device.uuid)
        if handle is None:
            return None
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        milliwatts = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        return GpuReading(
            memory and int(memory.used),
            memory and int(memory.total),
            rates and int(rates.gpu),
            self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            milliwatts and milliwatts / 1000,
        )

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except self._library.NVMLError:
            return None
