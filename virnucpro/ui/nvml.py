"""Memory, utilisation, temperature and power of GPUs, from the driver's management library.

NVML needs no CUDA context. Whatever it does not know (MIG slices have no utilisation, some boards
no power) is None; without a driver there are no readings at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from virnucpro.contracts import Device


@dataclass(frozen=True)
class Reading:
    """Bytes, percent, degrees Celsius and watts of a device at one moment."""

    memory_used: int | None = None
    memory_total: int | None = None
    utilisation: int | None = None
    temperature: int | None = None
    power: float | None = None


class Gauges(Protocol):
    """Where readings come from."""

    def read(self, device: Device) -> Reading | None:
        """The state of a device now; None where nothing can be known."""
        ...

    def close(self) -> None:
        """Let go of the library. Safe to call twice."""
        ...


class Nvml:
    """Readings by UUID. Opened at the first reading of a GPU, and only once."""

    def __init__(self, library: Any = None) -> None:
        """``library`` takes the place of ``pynvml``."""
        self._library = library
        self._there: bool | None = None
        self._handles: dict[str, Any] = {}

    def read(self, device: Device) -> Reading | None:
        """The state of a GPU now; None for a CPU, or where the driver does not answer."""
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
        return Reading(
            None if memory is None else int(memory.used),
            None if memory is None else int(memory.total),
            None if rates is None else int(rates.gpu),
            self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            None if milliwatts is None else milliwatts / 1000,
        )

    def _open(self) -> bool:
        if self._there is None:
            if self._library is None:
                import pynvml

                self._library = pynvml
            try:
                self._library.nvmlInit()
                self._there = True
            except self._library.NVMLError:
                self._there = False
        return self._there

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except self._library.NVMLError:
            return None

    def close(self) -> None:
        """Let go of the library. Safe to call twice."""
        if self._there:
            self._ask(self._library.nvmlShutdown)
        self._there, self._handles = False, {}
