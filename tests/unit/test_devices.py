"""Which devices a run gets, from tables of requested and visible ones."""

from __future__ import annotations

import pytest

from virnucpro.contracts import Device
from virnucpro.devices import choose_devices, read_gpu, visible_gpus
from virnucpro.errors import DeviceError, UsageError
from virnucpro.settings import MachineSettings

A100 = Device("cuda", 0, "A100", "GPU-aaaa", 80 << 30, (8, 0))
H200 = Device("cuda", 1, "H200", "GPU-bbbb", 141 << 30, (9, 0))
V100 = Device("cuda", 2, "V100", "GPU-cccc", 16 << 30, (7, 0))
P100 = Device("cuda", 3, "P100", "GPU-dddd", 16 << 30, (6, 0))
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
def test_choice(options: dict[str, object], indices: list[int]) -> None:
    chosen = choose_devices(MachineSettings(threads=6, **options), GPUS)  # type: ignore[arg-type]
    assert [device.index for device in chosen] == indices
    assert all(device.threads == max(1, 6 // len(chosen)) for device in chosen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": "7"}, r"GPU 7 is not there; visible are 0 \(A100, GPU-aaaa\), 1"),
        ({"gpus": "0,0"}, "twice"),
        ({"gpus": "0,,1"}, "neither an index nor a UUID"),
        ({"gpus": "a"}, "neither an index nor a UUID"),
        ({"gpus": "-1"}, "neither an index nor a UUID"),
        ({"device": "gpu"}, "expected auto, cpu"),
        ({"device": "cuda:x"}, "neither an index nor a UUID"),
        ({"device": "cpu", "gpus": "0"}, "contradict"),
        ({"cpu_workers": 2, "gpus": "0"}, "leave out --gpus"),
    ],
)
def test_refusals(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        choose_devices(MachineSettings(**options), GPUS)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"gpus": "0"}, {"device": "cuda"}, {"fallback_to_cpu": False}])
def test_an_explicit_gpu_never_becomes_a_cpu(options: dict[str, object]) -> None:
    with pytest.raises(DeviceError, match="--device cpu"):
        choose_devices(MachineSettings(**options), [])  # type: ignore[arg-type]


def test_auto_may_do_without_a_gpu() -> None:
    assert [d.kind for d in choose_devices(MachineSettings(), [])] == ["cpu"]


def test_compiling_is_for_gpus() -> None:
    with pytest.raises(
        UsageError, match="compiling is for GPUs: on the CPU leave out --compile always"
    ):
        choose_devices(MachineSettings(device="cpu", compile="always"), [])
    assert choose_devices(MachineSettings(compile="always"), [A100])[0].kind == "cuda"


def test_looking_for_gpus_works_on_any_machine() -> None:
    assert all(gpu.kind == "cuda" and gpu.uuid for gpu in visible_gpus())


class LostGpu:
    """A driver with two GPUs, of which the first fell off the bus."""

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 0:
            raise self.NVMLError("GPU is lost")
        return index


def test_a_lost_gpu_is_passed_over() -> None:
    assert read_gpu(LostGpu(), 0) is None
