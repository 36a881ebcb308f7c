"""Commands in processes of their own that are forked from one that has imported torch.

Importing torch takes a second or two, and a test that starts, kills and resumes a command would do
it again and again. Here one process for each process of pytest does it once, and a start takes a
tenth of a second. Where it matters how a command starts, the tests use ``shell`` or ``subprocess``.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import reduction
from pathlib import Path
from typing import Any

from virnucpro.executors import processes

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.preloaded"])
# With these, a report has neither figures nor tracks, and an evaluation empty plots.
UNDRAWN = {
    "virnucpro.report.content.MOST_TRACKS": 0,
    "virnucpro.report.page.FEWEST_RECORDS": 10**9,
    "virnucpro.evaluation.plots.image_of": lambda *_: b"",
}


@dataclass(frozen=True)
class Call:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class _Descriptor:
    """The number of an open file, which is passed on to a process that is being started."""

    number: int

    def __reduce__(self):
        return _number_here, (reduction.DupFd(self.number),)


def _number_here(passed) -> int:
    return passed.detach()


def _carry_out(
    words: list[str], streams: list[int], folder: Path, environment: Mapping[str, str]
) -> None:
    """Be ``python -m MODULE WORDS`` with these standard streams."""
    # The process that forks may have been started while signals were blocked, as for a worker.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, "rww"[number]) for number in range(3))
    sys.argv = words
    for name, value in UNDRAWN.items():
        holder, _, constant = name.rpartition(".")
        setattr(import_module(holder), constant, value)
    # On the CPU, workers may be forked, and they need not import torch either.
    processes.START = ForkedStart(multiprocessing.get_context("fork"))  # type: ignore[assignment]
    module = import_module("virnucpro.__main__" if words[0] == "virnucpro" else words[0])
    try:
        sys.exit(module.main())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


class ForkedStart:
    """What ``virnucpro.executors.processes`` starts its processes with, in place of spawning them."""

    def __init__(self, context: Any) -> None:
        self.Pipe, self._process = context.Pipe, context.Process

    def Process(self, target: Callable[..., None], args: tuple[Any, ...], **options: Any) -> Any:
        return self._process(target=_be_child, args=(target, args, dict(os.environ)), **options)


def _be_child(
    target: Callable[..., None], args: tuple[Any, ...], environment: Mapping[str, str]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    connection, _, *others = args
    target(connection, os.getppid(), *others)


class ForkedCommand:
    """``python -m MODULE WORDS`` in a session of its own, with the methods of ``Popen``.

    Attributes:
        pid: number of the process.
    """

    def __init__(
        self,
        *words: object,
        input: str = "",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        terminal: int | None = None,
    ) -> None:
        """Start it.

        ``env`` is added to the environment. ``terminal`` is an open terminal to be used for all
        standard streams, in place of files.
        """
        self._files = [tempfile.TemporaryFile("w+") for _ in range(3)]  # noqa: SIM115
        self._files[0].write(input)
        self._files[0].seek(0)
        numbers = [terminal if terminal is not None else file.fileno() for file in self._files]
        streams = [_Descriptor(number) for number in numbers]
        arguments = (
            list(map(str, words)),
            streams,
            cwd or Path.cwd(),
            {**os.environ, **(env or {})},
        )
        self._process = CONTEXT.Process(target=_carry_out, args=arguments)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, minus the number of the signal that ended it, or None while it runs."""
        return self._process.exitcode

    @property
    def out(self) -> str:
        """What it has written to standard output."""
        return self._written(1)

    @property
    def err(self) -> str:
        """What it has written to standard error."""
        return self._written(2)

    def _written(self, number: int) -> str:
        file = self._files[number].fileno()
        return os.pread(file, os.fstat(file).st_size, 0).decode()

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self.returncode

    def wait(self, timeout: float = 300) -> int:
        """Return the exit code when it has ended.

        Raises:
            TimeoutExpired: it has not ended after ``timeout`` seconds.
        """
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a forked command", timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill it if it still runs, and forget what it has written."""
        self.kill()
        self.wait()
        self._process.close()
        for file in self._files:
            file.close()


def run_forked(
    *words: object,
    module: str = "virnucpro",
    input: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Call:
    """Run ``python -m MODULE WORDS`` until it ends."""
    process = ForkedCommand(module, *words, input=input, cwd=cwd, env=env)
    try:
        return Call(process.wait(), process.out, process.err)
    finally:
        process.close()
