"""Tasks on nodes that do not see the folders of a run: files travel with the messages.

A worker finds the inputs of a task in memory and writes its outputs there; the parent process,
which has the folders, writes what arrives. Nothing is left on a node, however its worker ends.
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from virnucpro.contracts import Task
from virnucpro.errors import OutputError, VirNucProError
from virnucpro.executors.failures import describe_failure
from virnucpro.executors.pool import PoolEvent, TaskCompleted, WorkFailed
from virnucpro.executors.processes import OpenStage, RunTask
from virnucpro.store.disk import Disk

# Input files that are ready to be sent. Tasks come file by file, but for the last ones of a stage;
# a file of 10,000 frames has 2 to 5 MB.
READY_FILES = 16


@dataclass(frozen=True)
class Delivery:
    """The event of a finished task, with the contents of its outputs in their order."""

    event: TaskCompleted
    contents: tuple[bytes, ...]


class MemoryDisk(Disk):
    """A disk that keeps what is written in memory, by the paths that the files have elsewhere."""

    def __init__(self) -> None:
        self._files: dict[Path, bytes] = {}

    def take(self, path: Path) -> bytes:
        """Return the content of a file and forget it."""
        return self._files.pop(path)

    def open_new(self, path: Path) -> BinaryIO:
        """Create a file in memory."""
        return _MemoryFile(self._files, path)

    def sync(self, stream: BinaryIO) -> None:
        """Do nothing: whoever takes the file writes it to a disk."""

    def sync_folder(self, folder: Path) -> None:
        """Do nothing."""

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another path."""
        self._files[new] = self._files.pop(old)

    def unlink(self, path: Path) -> None:
        """Forget a file."""
        if self._files.pop(path, None) is None:
            raise FileNotFoundError(path)

    def mkdir(self, path: Path) -> None:
        """Do nothing: there are no folders."""

    def rmdir(self, path: Path) -> None:
        """Do nothing."""


class _MemoryFile(io.BytesIO):
    """A file that is being written; it is kept when it is closed."""

    def __init__(self, files: dict[Path, bytes], path: Path) -> None:
        super().__init__()
        self._files, self._path = files, path

    def close(self) -> None:
        if not self.closed:
            self._files[self._path] = self.getvalue()
        super().close()


class MemoryInput:
    """A file that exists only in the memory of this process, with a path to read it by."""

    def __init__(self, name: str, content: bytes) -> None:
        """``name`` is shown in ``/proc``, and nothing else."""
        self._descriptor = os.memfd_create(name)
        with open(self._descriptor, "wb", closefd=False) as stream:
            stream.write(content)
        self.path = Path(f"/proc/self/fd/{self._descriptor}")

    def close(self) -> None:
        """Forget the file; whoever reads it may go on."""
        os.close(self._descriptor)


class FilesInMemory:
    """The worker's side: has tasks read and write in memory instead of the folders of the run.

    Messages are taken in one thread while events are sent in another.
    """

    def __init__(self) -> None:
        self._disk = MemoryDisk()
        self._tasks: deque[tuple[Task, list[MemoryInput]]] = deque()

    def taken_in(self, message: OpenStage | RunTask, inputs: tuple[bytes, ...]) -> Any:
        """Return a message for this process; ``inputs`` are contents of a task's input files."""
        if isinstance(message, OpenStage):
            self._disk = MemoryDisk()
            return replace(message, stage=message.stage.writing_to(self._disk))
        task = message.task
        files = [MemoryInput(p.name, text) for p, text in zip(task.inputs, inputs, strict=True)]
        self._tasks.append((task, files))
        return RunTask(replace(task, inputs=tuple(file.path for file in files)))

    def sent_out(self, event: PoolEvent) -> PoolEvent | Delivery:
        """Return an event for the parent process, about the task as that knows it."""
        match event:
            case TaskCompleted(result=result):
                contents = tuple(self._disk.take(output.path) for output in result.outputs)
                known = replace(result, task=self._finished())
                return Delivery(replace(event, result=known), contents)
            case WorkFailed(task=Task()):
                return replace(event, task=self._finished())
        return event

    def _finished(self) -> Task:
        """Return the oldest task, which is over, and forget its inputs."""
        task, files = self._tasks.popleft()
        for file in files:
            file.close()
        return task


class FilesOnDisk:
    """The side of the parent process: reads the inputs of tasks and writes their outputs."""

    def __init__(self, disk: Disk, keep: Callable[[bytes], Any]) -> None:
        """``keep`` puts a content where workers can fetch it, and returns a ticket for it."""
        self._disk = disk
        self._keep = keep
        self._ready: OrderedDict[Path, Any] = OrderedDict()

    def inputs(self, task: Task) -> list[Any]:
        """Return tickets for the contents of a task's input files.

        Raises:
            OSError: a file cannot be read.
        """
        for path in task.inputs:
            if path not in self._ready:
                self._ready[path] = self._keep(path.read_bytes())
            self._ready.move_to_end(path)
        tickets = [self._ready[path] for path in task.inputs]
        while len(self._ready) > max(READY_FILES, len(tickets)):
            self._ready.popitem(last=False)
        return tickets

    def written(self, delivery: Delivery) -> PoolEvent:
        """Write the outputs of a finished task; returns its event, or a failure."""
        event = delivery.event
        try:
            for output, content in zip(event.result.outputs, delivery.contents, strict=True):
                saved = self._disk.save(
                    output.path, content, output.rows, durable=event.result.task.span is None
                )
                if saved != output:
                    raise OutputError(
                        f"{output.path} has arrived with other content than was sent: check the "
                        f"network and the memory of the nodes, then {self._disk.again}"
                    )
        except VirNucProError as error:
            failure = describe_failure(error)
            return WorkFailed(event.worker, event.result.task, failure, event.seconds)
        return event
