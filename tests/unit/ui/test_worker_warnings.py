"""When a worker counts as stalled or as lagging: tables over the progress and a clock."""

from __future__ import annotations

import pytest

from tests.unit.ui.simulated import Hand, begin, file_task, gpu
from virnucpro.contracts import Device
from virnucpro.events import Progressed, TaskFinished, TaskStarted, WorkerReady
from virnucpro.ui.stage_progress import StageProgress
from virnucpro.ui.worker_warnings import SLOW_SECONDS, WorkerWatch, slow_workers, stalled_workers


def _meter(hand: Hand, devices: list[Device]) -> StageProgress:
    progress = StageProgress(hand)
    progress.update(begin(tasks=10_000))
    for number, device in enumerate(devices):
        progress.update(WorkerReady(number, device, "protein_embeddings", 1.0))
    return progress


@pytest.mark.parametrize(
    ("usual", "silent", "warns"),
    [
        (2.0, 59, False),
        (2.0, 61, True),
        (30.0, 149, False),
        (30.0, 151, True),
        (None, 599, False),
        (None, 601, True),
    ],
)
def test_stalled(usual: float | None, silent: float, warns: bool) -> None:
    hand = Hand()
    progress = _meter(hand, [gpu(0)])
    if usual is not None:
        progress.update(TaskStarted(0, file_task(0)))
        progress.update(TaskFinished(0, file_task(0), usual))
    progress.update(TaskStarted(0, file_task(100)))
    hand.now += silent
    found = stalled_workers(progress.workers, hand.now)
    assert bool(found) is warns
    if warns:
        assert found[0].startswith("GPU 0 NVIDIA H200 has made no progress for")
        assert "output_100_ESM.pt" in found[0]


def test_an_idle_worker_and_the_first_piece_on_a_cpu_are_not_stalled() -> None:
    hand = Hand()
    progress = _meter(hand, [gpu(0), Device("cpu")])
    progress.update(TaskStarted(1, file_task(0)))
    hand.now += 9999
    assert stalled_workers(progress.workers, hand.now) == {}


def test_a_stall_is_said_once_and_again_only_after_progress() -> None:
    hand = Hand()
    progress = _meter(hand, [gpu(0)])
    watch = WorkerWatch(progress)
    progress.update(TaskStarted(0, file_task(0)))
    said = []
    for _ in range(3):
        hand.now += 700
        said.append(len(watch.check(hand.now)))
        hand.now += 1
        said.append(len(watch.check(hand.now)))
    assert said == [1, 0, 0, 0, 0, 0]
    progress.update(Progressed(0, 1, 1))
    assert watch.check(hand.now) == []
    hand.now += 700
    assert len(watch.check(hand.now)) == 1


def _run(
    progress: StageProgress,
    hand: Hand,
    speeds: list[int],
    seconds: int,
    watch: WorkerWatch | None = None,
) -> list[str]:
    said = []
    for worker in range(len(speeds)):
        progress.update(TaskStarted(worker, file_task(0, 10**6, 10**8)))
    for _ in range(seconds):
        hand.now += 1
        for worker, speed in enumerate(speeds):
            progress.update(Progressed(worker, speed, 0))
        if watch:
            said += watch.check(hand.now)
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
    hand = Hand()
    progress = _meter(hand, [gpu(n) for n in range(len(speeds))])
    _run(progress, hand, speeds, 40)
    assert list(slow_workers(progress.workers, hand.now)) == slow


def test_unlike_gpus_are_not_compared() -> None:
    hand = Hand()
    progress = _meter(hand, [gpu(0), gpu(1), gpu(2, "NVIDIA T4")])
    _run(progress, hand, [100, 100, 10], 40)
    assert slow_workers(progress.workers, hand.now) == {}


def test_an_imbalance_is_said_once_and_only_when_it_lasts() -> None:
    hand = Hand()
    progress = _meter(hand, [gpu(n) for n in range(3)])
    watch = WorkerWatch(progress)
    assert _run(progress, hand, [100, 100, 30], int(SLOW_SECONDS) - 40, watch) == []
    assert _run(progress, hand, [100, 100, 100], 60, watch) == []
    said = _run(progress, hand, [100, 100, 30], 900, watch)
    assert len(said) == 1
    assert "GPU 2 NVIDIA H200 has been slow for 3:00: 30 % of the speed of the others" in said[0]
