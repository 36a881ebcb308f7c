"""When a worker counts as stalled or as lagging: tables over the progress and a clock."""

from __future__ import annotations

import pytest

from tests.unit.ui.simulated import Worked, begin, file_task, gpu
from virnucpro.contracts import Device
from virnucpro.events import Progressed, TaskFinished, TaskStarted
from virnucpro.ui.progress import SLOW_SECONDS, worker_warnings


@pytest.mark.parametrize(
    ("device", "usual", "silent", "warns"),
    [
        (gpu(0), 2.0, 59, False),
        (gpu(0), 2.0, 61, True),
        (gpu(0), 30.0, 149, False),
        (gpu(0), 30.0, 151, True),
        (gpu(0), None, 599, False),
        (gpu(0), None, 601, True),
        (Device("cpu"), None, 9999, False),  # its first task may rightly take hours
        (Device("cpu"), 30.0, 151, True),
    ],
)
def test_stalled(device: Device, usual: float | None, silent: float, warns: bool) -> None:
    stage = Worked(device, gpu(1))  # the other one is idle
    if usual is not None:
        stage.update(TaskStarted(0, file_task(0)), TaskFinished(0, file_task(0), usual))
    stage.update(TaskStarted(0, file_task(100)))
    stage.hand.now += silent
    found = worker_warnings(stage.progress.workers, stage.hand.now)
    assert len(found) == warns
    assert not warns or "output_100_ESM.pt" in found[0]


def test_a_first_task_is_compared_with_those_of_the_same_devices() -> None:
    stage = Worked(gpu(0), gpu(1))
    stage.update(TaskStarted(0, file_task(0)), TaskFinished(0, file_task(0), 4.0))
    stage.update(TaskStarted(1, file_task(100)))
    stage.hand.now += 61
    assert len(worker_warnings(stage.progress.workers, stage.hand.now)) == 1


def test_a_stall_is_said_once_and_again_only_after_progress() -> None:
    stage = Worked(gpu(0))
    stage.update(TaskStarted(0, file_task(0)))
    said = []
    for _ in range(3):
        stage.hand.now += 700
        said += worker_warnings(stage.progress.workers, stage.hand.now)
    assert len(said) == 1
    assert said[0].startswith("GPU 0 NVIDIA H200 has made no progress for 11:40 on output_0_ESM.pt")
    stage.update(Progressed(0, 1, 1))
    assert worker_warnings(stage.progress.workers, stage.hand.now) == []
    stage.hand.now += 700
    assert len(worker_warnings(stage.progress.workers, stage.hand.now)) == 1


def run(stage: Worked, speeds: list[int], seconds: int) -> list:
    said = []
    stage.update(
        *(TaskStarted(worker, file_task(0, 10**6, 10**8)) for worker in range(len(speeds)))
    )
    for _ in range(seconds):
        stage.hand.now += 1
        stage.update(*(Progressed(worker, speed, 0) for worker, speed in enumerate(speeds)))
        said += worker_warnings(stage.progress.workers, stage.hand.now)
    return said


@pytest.mark.parametrize(
    ("speeds", "slow"),
    [
        ([100, 100, 40, 100], [2]),
        ([100, 100, 60, 100], []),
        ([100, 49], [1]),
        ([100], []),
        ([100, 100, 10, 10], [2, 3]),
        ([0, 100, 100], [0]),
    ],
)
def test_lagging(speeds: list[int], slow: list[int]) -> None:
    stage = Worked(*map(gpu, range(len(speeds))), gpu(9, "NVIDIA T4"), stage=begin(tasks=10_000))
    said = run(stage, [*speeds, 10], 190)  # unlike GPUs are not compared
    assert [int(text.split()[1]) for text in said] == slow


def test_an_imbalance_is_said_once_and_only_when_it_lasts() -> None:
    stage = Worked(*map(gpu, range(3)), stage=begin(tasks=10_000))
    assert run(stage, [100, 100, 30], int(SLOW_SECONDS) - 40) == []
    assert run(stage, [100, 100, 100], 60) == []
    said = run(stage, [100, 100, 30], 900)
    assert len(said) == 1
    assert "GPU 2 NVIDIA H200 has been slow for 3:00: 30 % of the median speed" in said[0]
