"""Which devices a run gets, from tables of requested and visible ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from virnucpro.contracts import Device
from virnucpro.devices import choose_devices, read_gpu, visible_gpus
from virnucpro.errors import DeviceError, UsageError
from virnucpro.settings import MachineSettings

A100 = Device("cuda", 0, "A100", "GPU-aaaa", 80 << 30, (8, 0))
H200 = Device("cuda", 1, "H200", "GPU-bbbb", 141 << 30, (9, 0))
V100 = Device("cuda", 2, "V100", "GPU-cccc", 16 << 30, (7, 0))
GPUS = [A100, H200, V100]


@pytest.mark.parametrize(
    ("options", "indices"),
    [
        ({}, [0, 1, 2]),
        ({"device": "cuda"}, [0, 1, 2]),
        ({"device": "cuda:1"}, [1]),
        ({"device": "cuda:0,2"}, [0, 2]),
        ({"device": "2"}, [2]),
        ({"device": "GPU-bbbb"}, [1]),
        ({"gpus": "2,0"}, [2, 0]),
        ({"gpus": "GPU-cccc, 1"}, [2, 1]),
        ({"max_workers": 2}, [0, 1]),
        ({"device": "cpu"}, [-1]),
        ({"cpu_workers": 3}, [-1, -1, -1]),
    ],
)
def test_choice(options, indices):
    chosen = choose_devices(MachineSettings(threads=6, **options), GPUS)  # type: ignore[arg-type]
    assert [device.index for device in chosen] == indices
    assert all(device.threads == max(1, 6 // len(chosen)) for device in chosen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": "7"}, r"GPU '7' is not there; visible are 0 \(A100, GPU-aaaa\), 1"),
        ({"gpus": "0,GPU-aaaa"}, "twice"),
        ({"gpus": "0,,1"}, "GPU '' is not there"),
        ({"gpus": "a"}, "GPU 'a'"),
        ({"gpus": "-1"}, "GPU '-1'"),
        ({"device": "gpu"}, "expected auto, cpu"),
        ({"device": "cuda:x"}, "GPU 'x'"),
        ({"device": "cpu", "gpus": "0"}, "contradict"),
        ({"cpu_workers": 2, "gpus": "0"}, "leave out --gpus"),
        ({"device": "cpu", "compile": "always"}, "compiling is for GPUs"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(UsageError, match=message):
        choose_devices(MachineSettings(**options), GPUS)


@pytest.mark.parametrize("options", [{"gpus": "0"}, {"device": "cuda"}, {"fallback_to_cpu": False}])
def test_an_explicit_gpu_never_becomes_a_cpu(options):
    with pytest.raises(DeviceError):
        choose_devices(MachineSettings(**options), [])
    assert [device.kind for device in choose_devices(MachineSettings(), [])] == ["cpu"]


class NvmlError(Exception):
    """What the driver raises."""


@dataclass
class FakeGpu:
    """A GPU, or a MIG device, as the driver knows it; ``mig`` None: it cannot be partitioned."""

    uuid: str
    name: str = "NVIDIA H100"
    mig: list[FakeGpu | None] | None = None
    memory: int = 80 << 30
    lost: bool = False

    def mig_mode(self) -> list[int]:
        return [int(bool(self.mig))] * 2 if self.mig is not None else _refuse()

    def slice(self, number: int) -> FakeGpu:
        found = (self.mig or [])[number : number + 1]
        return found[0] if found and found[0] is not None else _refuse()

    def capability(self) -> tuple[int, int]:
        return _refuse() if self.uuid.startswith("MIG-") else (9, 0)


def _refuse() -> Any:
    raise NvmlError("Not Supported")


def fake_driver(*gpus: FakeGpu) -> SimpleNamespace:
    """What pynvml offers, over a list of GPUs; of none it says how busy it is."""
    return SimpleNamespace(
        NVML_DEVICE_MIG_ENABLE=1,
        NVML_TEMPERATURE_GPU=0,
        NVMLError=NvmlError,
        nvmlInit=lambda: None if gpus else _refuse(),
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(gpus),
        nvmlDeviceGetHandleByIndex=lambda index: _refuse() if gpus[index].lost else gpus[index],
        nvmlDeviceGetHandleByUUID=lambda uuid: ([g for g in gpus if g.uuid == uuid] or _refuse())[
            0
        ],
        nvmlDeviceGetName=lambda gpu: gpu.name,
        nvmlDeviceGetUUID=lambda gpu: gpu.uuid,
        nvmlDeviceGetMemoryInfo=lambda gpu: SimpleNamespace(used=5, total=gpu.memory),
        nvmlDeviceGetUtilizationRates=lambda gpu: _refuse(),
        nvmlDeviceGetPowerUsage=lambda gpu: 612_000,
        nvmlDeviceGetTemperature=lambda gpu, sensor: 61,
        nvmlDeviceGetCudaComputeCapability=FakeGpu.capability,
        nvmlDeviceGetMigMode=FakeGpu.mig_mode,
        nvmlDeviceGetMaxMigDeviceCount=lambda gpu: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=FakeGpu.slice,
    )


SLICES: list[FakeGpu | None] = [
    FakeGpu("MIG-1111", "NVIDIA H100 MIG 3g.40gb", memory=40 << 30),
    None,
    FakeGpu("MIG-1122", "NVIDIA H100 MIG 2g.20gb", memory=20 << 30),
]
WHOLE, PARTITIONED = FakeGpu("GPU-aaaa"), FakeGpu("GPU-bbbb", mig=SLICES)
UNPARTITIONED = FakeGpu("GPU-bbcc", mig=[])


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install GPUs and a mask."""

    def install(*gpus: FakeGpu, mask: str | None = None) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", fake_driver(*gpus))
        monkeypatch.setattr("torch.version.cuda", "12.8")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if mask is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)

    return install


def test_mig_devices_are_found(driver):
    driver(WHOLE, PARTITIONED, UNPARTITIONED)
    assert visible_gpus() == [
        Device("cuda", 0, "NVIDIA H100", "GPU-aaaa", 80 << 30, (9, 0)),
        Device("cuda", 1, "NVIDIA H100 MIG 3g.40gb", "MIG-1111", 40 << 30, (9, 0)),
        Device("cuda", 2, "NVIDIA H100 MIG 2g.20gb", "MIG-1122", 20 << 30, (9, 0)),
        Device("cuda", 3, "NVIDIA H100", "GPU-bbcc", 80 << 30, (9, 0)),
    ]
    chosen = choose_devices(MachineSettings(device="MIG-112", threads=1), visible_gpus())
    assert [device.uuid for device in chosen] == ["MIG-1122"]


@pytest.mark.parametrize(
    ("mask", "uuids"),
    [
        ("", []),
        ("2,0", ["GPU-bbcc", "GPU-aaaa"]),
        ("1", ["MIG-1111"]),
        ("GPU-bbb", ["MIG-1111"]),
        ("GPU-bbc, GPU-a", ["GPU-bbcc", "GPU-aaaa"]),
        ("GPU-bb", []),
        ("MIG-1122,MIG-1111", ["MIG-1122", "MIG-1111"]),
        ("MIG-11", []),
        ("0,-1,2", ["GPU-aaaa"]),
        ("0,7,2", ["GPU-aaaa"]),
        ("NoDevFiles", []),
        ("0,0", []),
        ("aaaa", []),
    ],
)
def test_masks(driver, mask, uuids):
    driver(WHOLE, PARTITIONED, UNPARTITIONED, mask=mask)
    visible = visible_gpus()
    assert [gpu.uuid for gpu in visible] == uuids
    assert [gpu.index for gpu in visible] == list(range(len(uuids)))


@pytest.mark.parametrize("mask", [None, "1"])
def test_a_lost_gpu_is_passed_over(driver, mask):
    driver(FakeGpu("GPU-aaaa", lost=True), UNPARTITIONED, mask=mask)
    assert [gpu.uuid for gpu in visible_gpus()] == ["GPU-bbcc"]


def test_what_is_not_known_of_a_gpu_is_none(driver):
    for gpus, known in (([WHOLE], (5, 80 << 30, None, 61, 612.0)), ([], None)):
        driver(*gpus)
        assert [read_gpu(device) for device in (A100, H200, Device("cpu"))] == [known, None, None]
