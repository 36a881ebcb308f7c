"""How a process is started and settled on its device."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.contract.counting import Counting
from virnucpro.contracts import Device
from virnucpro.events import Progressed
from virnucpro.workers import processes
from virnucpro.workers.pool import PoolEvent
from virnucpro.workers.processes import ChildProcess, ProcessPool, settle_on_device
from virnucpro.workers.signals import SIGNALS

GPU = Device("cuda", 3, "H200", "GPU-bbbb", 141 << 30, (9, 0), threads=2)
SETTLED = {
    "CUDA_VISIBLE_DEVICES": "GPU-bbbb",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "RAYON_NUM_THREADS": "5",
    "OMP_NUM_THREADS": "2",
}


def _describe(connection: Connection, greeting: str) -> None:
    ignored = [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN]
    connection.send((greeting, ignored, {name: os.environ.get(name) for name in SETTLED}))
    os.write(connection.fileno(), b"\0\0\1\0half of a message")


def test_a_child_is_settled_on_its_device(monkeypatch):
    monkeypatch.setattr(processes, "START", multiprocessing.get_context("spawn"))
    child = ChildProcess("child", GPU, 5, _describe, "hello")
    greeting, ignored, environment = child.receive()
    assert greeting == "hello"
    assert tuple(ignored) == SIGNALS
    assert environment == SETTLED
    assert child.receive() is None
    assert child.exit_reason() == "exit code 0"
    child.send("nobody listens")
    child.kill()


@pytest.mark.parametrize(
    ("uuid", "own", "changes"),
    [
        ("GPU-bbbb", {}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        ("MIG-a", {}, {}),
        ("GPU-bbbb", {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}, {}),
    ],
)
def test_a_process_is_settled_on_its_device(monkeypatch, uuid, own, changes):
    """Segments are expandable where torch works with them and nobody wants others."""
    monkeypatch.setattr(os, "environ", dict(own))
    settle_on_device(replace(GPU, uuid=uuid), 5)
    assert os.environ == {**own, **SETTLED, "CUDA_VISIBLE_DEVICES": uuid, **changes}
    assert torch.get_num_threads() == 2


class PipeOnly(ChildProcess):
    """No process: what it would send is in its pipe already."""

    def __init__(self, name: str, device: Device, *_: object) -> None:
        if device.index < 0:
            raise OSError("no more processes")
        (self.connection, self.far), (sentinel, *self.kept) = Pipe(), Pipe()
        self.process = SimpleNamespace(sentinel=sentinel)
        self.far.send(Progressed(device.index, 1, 1))

    def kill(self) -> None:
        assert not self.connection.closed, "it is killed twice"
        self.connection.close()


def test_what_a_replaced_worker_has_sent_is_passed_over(monkeypatch):
    """Also where it is replaced while the events of the same moment are handled."""
    monkeypatch.setattr(processes, "ChildProcess", PipeOnly)
    pool, events = ProcessPool([Device("cpu", 0), Device("cpu", 1)], 1), list[PoolEvent]()
    for worker in (pool.start(), pool.start()):
        assert worker is not None

    def handle(event: PoolEvent) -> None:
        events.append(event)
        pool.restart(1 - event.worker)

    pool.wait(60, handle)
    assert len(events) == 1
    pool.workers[0] = Device("cpu")  # it cannot be started again
    with pytest.raises(OSError, match="no more"):
        pool.restart(0)
    pool.close()


LOCKING = """
from virnucpro.contracts import Device
from virnucpro.workers import processes
from tests.unit.workers.locking import hold_a_lock
child = processes.ChildProcess("child", Device("cpu"), 1, hold_a_lock)
assert child.receive() == "here"
"""
UNKILLABLE = """
from multiprocessing.context import SpawnProcess
processes.STOP_SECONDS = 0.1
SpawnProcess.kill = lambda process: None
child.process._popen.terminate = child.kill
child.kill()
assert child.process.exitcode is None
"""


@pytest.mark.parametrize("script", [LOCKING + "child.kill()", LOCKING + UNKILLABLE])
def test_a_child_neither_holds_up_the_exit_nor_leaves_a_semaphore_behind(script):
    """Also in an uninterruptible call of a driver; here the system ends it with its parent."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, check=True, timeout=600, env=environment)
    assert done.stderr == b""


def _note_process(path: Path, device: Device) -> None:
    path.with_suffix(f".{device.index}").write_text(str(os.getpid()))


def test_a_worker_is_the_process_that_was_warmed_up_and_unused_ones_end_too(tmp_path):
    pool = ProcessPool([Device("cpu", number) for number in range(3)], 1)
    pool.warm_up(partial(_note_process, tmp_path / "pid"), 2)
    pool.warm_up(partial(_note_process, tmp_path / "again"), 2)
    assert not pool.workers
    assert pool.start() == 0
    stage = Counting((), tmp_path)
    pool.submit(0, stage)
    events: list[PoolEvent] = []
    while not events:
        pool.wait(60, events.append)
    children = list(pool._children.values())
    assert len(children) == 2
    assert (tmp_path / "pid.0").read_text() == str(pool._children[0].process.pid)
    assert not list(tmp_path.glob("again*"))
    pipes = [child.connection for child in children]
    pool.close()
    assert all(pipe.closed for pipe in pipes)
