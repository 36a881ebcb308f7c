"""What the GPUs are doing, as their driver reports it.

GPUs are read through the driver's management library (NVML), which needs no CUDA context. What it
does not know (MIG slices have no utilisation, some boards no power) is None; without a driver
there are no readings at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from virnucpro.contracts import Device


@dataclass(frozen=True)
class GpuReading:
    """State of a GPU at one moment: bytes, percent, degrees Celsius and watts."""

    memory_used: int | None = None
    memory_total: int | None = None
    utilisation: int | None = None
    temperature: int | None = None
    power: float | None = None


class GpuReader:
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
        if (handle := self._handles[device.uuid]) is None:
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
