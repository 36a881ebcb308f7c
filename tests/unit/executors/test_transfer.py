"""Files that travel with tasks: a worker that sees no folder, and what the parent process writes."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.contract.counting import Counting
from tests.contract.running import fasta
from virnucpro.contracts import Device, Task
from virnucpro.errors import OutputError
from virnucpro.executors.pool import PoolEvent, TaskCompleted, WorkFailed
from virnucpro.executors.processes import OpenStage, RunTask
from virnucpro.executors.transfer import (
    READY_FILES,
    Delivery,
    FilesInMemory,
    FilesOnDisk,
    MemoryDisk,
)
from virnucpro.executors.worker import TaskRunner
from virnucpro.store.disk import Bytes, Disk

GPU = Device("cuda", 0, uuid="GPU-0")  # it computes one task while another one is written


def _node(stage: Counting, tasks: list[tuple[Task, list[bytes]]]) -> list[PoolEvent | Delivery]:
    """Do what a worker on another node does; returns what it sends."""
    files = FilesInMemory()
    sent: list[PoolEvent | Delivery] = []
    runner = TaskRunner(0, GPU, lambda event: sent.append(files.sent_out(event)))
    opening = files.taken_in(OpenStage(stage, 0), ())
    runner.open(opening.stage, 0)
    for message in [files.taken_in(RunTask(task), tuple(inputs)) for task, inputs in tasks]:
        runner.run(message.task)
    runner.open(opening.stage, 0)  # waits until the last task is written
    return sent


def test_a_worker_touches_no_folder_of_the_run(tmp_path: Path) -> None:
    folder, hidden = tmp_path / "run", tmp_path / "hidden"
    folder.mkdir()
    stage = Counting((fasta(folder, "f.fa", ["a", "b", "poison", "d", "e"]),), folder, span=2)
    tasks = stage.split(stage.plan()[0])
    here = FilesOnDisk(Disk(), lambda content: content)
    given = [(task, here.inputs(task)) for task in tasks]
    folder.rename(hidden)
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    sent = _node(stage, given)
    assert len(os.listdir("/proc/self/fd")) <= descriptors  # noqa: PTH208 - nothing stays open
    assert not folder.exists()
    hidden.rename(folder)
    deliveries = [event for event in sent if isinstance(event, Delivery)]
    (failed,) = [event for event in sent if isinstance(event, WorkFailed)]
    assert failed.task == tasks[1]
    events = [here.written(delivery) for delivery in deliveries]
    results = [event.result for event in events if isinstance(event, TaskCompleted)]
    assert [result.task for result in results] == [tasks[0], tasks[2]]
    assert [output.path.read_text() for r in results for output in r.outputs] == [
        "a 5\nb 6\n",
        "e 9\n",
    ]


def _delivery(folder: Path) -> Delivery:
    stage = Counting((fasta(folder, "f.fa", ["a", "b"]),), folder, span=2)
    (task,) = stage.split(stage.plan()[0])
    (delivery,) = [
        event
        for event in _node(stage, [(task, [stage.files[0].read_bytes()])])
        if isinstance(event, Delivery)
    ]
    return delivery


class FullDisk(Disk):
    """A disk without space."""

    def write(self, stream: BinaryIO, data: Bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_a_failure_of_the_run(tmp_path: Path) -> None:
    failed = FilesOnDisk(FullDisk(), lambda content: content).written(_delivery(tmp_path))
    assert isinstance(failed, WorkFailed)
    assert (failed.failure.kind, failed.failure.error) == ("run", "OutputError")
    assert "free some space" in failed.failure.message


def test_a_content_that_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    delivery = replace(_delivery(tmp_path), contents=(b"a 5\nb 7\n",))
    failed = FilesOnDisk(Disk(), lambda content: content).written(delivery)
    assert isinstance(failed, WorkFailed)
    assert "arrived with other content" in failed.failure.message


def test_an_input_is_read_once_for_its_spans_and_few_are_kept(tmp_path: Path) -> None:
    kept: list[bytes] = []

    def keep(content: bytes) -> int:
        kept.append(content)
        return len(kept) - 1

    here = FilesOnDisk(Disk(), keep)
    ids = [str(n) for n in range(4)]
    paths = [fasta(tmp_path, f"f{n}.fa", ids) for n in range(READY_FILES + 1)]
    stage = Counting(tuple(paths), tmp_path, span=2)
    tickets = [
        here.inputs(span) for task in stage.plan() for span in stage.split(task)
    ]  # two spans of each file
    assert tickets == [[n // 2] for n in range(2 * len(paths))]
    assert here.inputs(stage.plan()[-1]) == [len(paths) - 1]
    assert here.inputs(stage.plan()[0]) == [len(paths)]  # it was the oldest, and is read again


def test_files_in_memory_behave_like_files(tmp_path: Path) -> None:
    disk, path = MemoryDisk(), tmp_path / "none" / "file"
    on_disk = Disk().save(tmp_path / "file", b"one\ntwo\n", 2)
    assert disk.save(path, [b"one\n", b"two\n"], 2) == replace(on_disk, path=path)
    assert disk.take(path) == b"one\ntwo\n"
    disk.remove(path)
    assert not path.parent.exists()


class FullMemory(MemoryDisk):
    """A memory without space."""

    write = FullDisk.write


def test_nothing_stays_in_memory_of_a_file_that_could_not_be_written(tmp_path: Path) -> None:
    disk = FullMemory()
    with pytest.raises(OutputError):
        disk.save(tmp_path / "file", b"content")
    assert not vars(disk)["_files"]
