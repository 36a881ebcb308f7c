"""What the machine is doing: GPUs as their driver reports them, memory and load of the host.

GPUs are read through the driver's management library (NVML), which needs no CUDA context. What it
does not know (MIG slices have no utilisation, some boards no power) is None; without a driver
there are no readings at all.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from virnucpro.contracts import Device

PROC = Path("/proc")
RESIDENT_PAGES = 1  # index of the field in /proc/PID/statm; see proc(5)


@dataclass(frozen=True)
class GpuReading:
    """State of a GPU at one moment: bytes, percent, degrees Celsius and watts."""

    memory_used: int | None = None
    memory_total: int | None = None
    utilisation: int | None = None
    temperature: int | None = None
    power: float | None = None


@dataclass(frozen=True)
class HostReading:
    """Resident bytes of this process and its children, and the load average of one minute."""

    memory: int
    load: float | None


class GpuReader(Protocol):
    """The source of GPU readings."""

    def read(self, device: Device) -> GpuReading | None:
        """Return the state of a device now; None where nothing can be known."""
        ...

    def close(self) -> None:
        """Let go of the library. Safe to call twice."""
        ...


class NvmlReader:
    """Reads GPUs by UUID. The library is opened at the first reading, and only once."""

    def __init__(self, library: Any = None) -> None:
        """``library`` takes the place of ``pynvml``."""
        self._library = library
        self._opened: bool | None = None
        self._handles: dict[str, Any] = {}

    def read(self, device: Device) -> GpuReading | None:
        """Return the state of a GPU; None for a CPU, or where the driver does not answer."""
        if device.kind != "cuda" or not self._open():
            return None
        nvml = self._library
        if device.uuid not in self._handles:
            self._handles[device.uuid] = self._ask(nvml.nvmlDeviceGetHandleByUUID, device.uuid)
        handle = self._handles[device.uuid]
        if handle is None:
            return None
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        milliwatts = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        return GpuReading(
            None if memory is None else int(memory.used),
            None if memory is None else int(memory.total),
            None if rates is None else int(rates.gpu),
            self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            None if milliwatts is None else milliwatts / 1000,
        )

    def _open(self) -> bool:
        if self._opened is None:
            if self._library is None:
                import pynvml

                self._library = pynvml
            try:
                self._library.nvmlInit()
                self._opened = True
            except self._library.NVMLError:
                self._opened = False
        return self._opened

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except self._library.NVMLError:
            return None

    def close(self) -> None:
        """Let go of the library. Safe to call twice."""
        if self._opened:
            self._ask(self._library.nvmlShutdown)
        self._opened, self._handles = False, {}


def read_host(proc: Path = PROC) -> HostReading:
    """Read memory and load of the host. Pages that processes share are counted in each of them."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    pid = str(os.getpid())
    own = _resident_bytes(proc / pid)
    if own is None:  # Without /proc only the peak is known; macOS counts bytes, others kB.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return HostReading(peak if sys.platform == "darwin" else peak * 1024, load)
    # Asking multiprocessing for the children instead would reap those that have just died.
    children: list[str] = []
    for path in (proc / pid).glob("task/*/children"):
        try:
            children += path.read_text().split()
        except OSError:  # the thread has ended meanwhile
            continue
    return HostReading(own + sum(_resident_bytes(proc / child) or 0 for child in children), load)


def _resident_bytes(process: Path) -> int | None:
    try:
        pages = (process / "statm").read_text().split()[RESIDENT_PAGES]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
