"""Proteins on one device or several, with the results in the order of the input.

One device computes in this process. Several have a process each, which gets a block of proteins
whenever it is idle. Blocks are the same whatever the devices, so that results are.
"""

from __future__ import annotations

import traceback
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection as connections
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from virnucpro.contracts import Device
from virnucpro.errors import DeviceError, VirNucProError
from virnucpro.executors.processes import ChildProcess

if TYPE_CHECKING:  # a process imports this module before it is settled on its device
    from virnucpro.rcl.finders import RclFinder, RclResult

Block = list[tuple[str, str]]
"""Ids and residues of proteins that are computed together."""
BLOCKS_AHEAD = 2  # per process: computed or at work, and not yet written
AGAIN = "nothing was written; run the same command again"


@dataclass(frozen=True)
class FindingFailed:
    """The last message of a process that met an error.

    ``error`` is written for the user; ``trace`` is the traceback of any other error.
    """

    error: VirNucProError | None
    trace: str = ""


def find_in_blocks(
    finder: RclFinder, devices: Sequence[Device], blocks: Iterator[Block]
) -> Generator[tuple[Block, Sequence[RclResult]], None, None]:
    """Yield each block with what the model says about its proteins that are not empty.

    Not more than ``BLOCKS_AHEAD`` blocks per device are in memory.

    Raises:
        DeviceError: a process died, or its device has too little memory.
        VirNucProError: the error that a process met.
    """
    if len(devices) == 1:
        finder.settle(devices[0])
        for block in blocks:
            yield block, finder.find(_sequences(block))
        return
    processes = FinderProcesses(finder, devices)
    try:
        yield from processes.results(blocks)
    finally:
        processes.close()


def _sequences(block: Block) -> list[str]:
    return [sequence for _, sequence in block if sequence]


class FinderProcesses:
    """A process for each device. Each of them has one block at a time."""

    def __init__(self, finder: RclFinder, devices: Sequence[Device]) -> None:
        """Start the processes and send them the model."""
        self._devices = devices
        self._children: list[ChildProcess] = []
        try:
            for number, device in enumerate(devices):
                name = f"virnucpro-rcl-{number}"
                threads = device.threads  # of the tokenizer, if an ESM-2 model computes features
                self._children.append(ChildProcess(name, device, threads, serve_blocks, device))
            for child in self._children:
                child.send(finder)
        except BaseException:
            self.close()
            raise

    def results(self, blocks: Iterator[Block]) -> Iterator[tuple[Block, Sequence[RclResult]]]:
        """Yield each block with its results. See :func:`find_in_blocks`."""
        numbered = enumerate(blocks)
        idle = list(range(len(self._children)))
        working: dict[int, int] = {}  # number of a block by process
        ahead: dict[int, Block] = {}
        done: dict[int, Sequence[RclResult]] = {}
        following, more = 0, True
        while more or ahead:
            while more and idle and len(ahead) < BLOCKS_AHEAD * len(self._children):
                number, block = next(numbered, (-1, []))
                more = number >= 0
                if more:
                    ahead[number] = block
                    working[idle[0]] = number
                    self._children[idle.pop(0)].send(_sequences(block))
            for process in self._awake(working) if working else ():
                done[working.pop(process)] = self._received(process)
                idle.append(process)
            while following in done:
                yield ahead.pop(following), done.pop(following)
                following += 1

    def _awake(self, working: dict[int, int]) -> list[int]:
        """Return the processes at work that have sent something or died; wait for one."""
        pipes = {self._children[process].connection: process for process in working}
        return [pipes[pipe] for pipe in connections.wait(list(pipes))]  # type: ignore[index]

    def _received(self, process: int) -> Sequence[RclResult]:
        """Return the results that a process has sent.

        Raises:
            VirNucProError: it has met an error, or died.
        """
        child, name = self._children[process], self._devices[process].name
        message = child.receive()
        if message is None:
            reason = child.exit_reason()
            hint = ": out of memory?" if reason == "signal 9" else ""
            raise DeviceError(f"the process on {name} ended by {reason}{hint}; {AGAIN}")
        if isinstance(message, FindingFailed):
            trace = f"the process on {name} failed; {AGAIN}\n{message.trace}"
            raise message.error or VirNucProError(trace)
        results: Sequence[RclResult] = message
        return results

    def close(self) -> None:
        """End the processes at once."""
        for child in self._children:
            child.kill()
        self._children = []


def serve_blocks(connection: Connection, device: Device) -> None:
    """Receive a model, then blocks, and send the results of each; runs in a process of a device."""
    from virnucpro.executors.worker import set_torch_threads

    try:
        finder: RclFinder = connection.recv()
        set_torch_threads(device.threads)
        finder.settle(device)
        while True:
            connection.send(finder.find(connection.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent is gone
    except VirNucProError as error:
        failure = FindingFailed(error)
    except Exception:  # noqa: BLE001 - the edge of a process: the parent reports it
        failure = FindingFailed(None, traceback.format_exc())
    connection.send(failure)
