"""What the GPUs are doing, as their driver reports it.

GPUs are read through the driver's management library (NVML), which needs no CUDA context. What it
does not know (MIG slices have no utilisation, some boards no power) is None; without a driver
there are no readings at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from virnucpro.contracts import Device


class GpuReading(NamedTuple):
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

    def close(self) -> None:
        """Let go of the library. Safe to call twice."""
        if self._opened:
            self._ask(self._library.nvmlShutdown)
        self._opened = False
