"""One GPU that is listed several times gives several workers."""

from __future__ import annotations

import pytest

from benchmarks.gpu.shared_gpu import list_gpu_several_times
from virnucpro import devices
from virnucpro.contracts import Device
from virnucpro.settings import MachineSettings

GPU = Device("cuda", 0, "NVIDIA H100", "GPU-12ab", 80 << 30, (9, 0))


def test_two_workers_share_the_first_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "visible_gpus", lambda: [GPU, Device("cuda", 1, uuid="GPU-99")])
    list_gpu_several_times(2)
    chosen = devices.choose_devices(MachineSettings(gpus="0,1", threads=8), devices.visible_gpus())
    assert [(gpu.index, gpu.uuid, gpu.threads) for gpu in chosen] == [
        (0, "GPU-12ab", 4),
        (1, "GPU-12ab", 4),
    ]
