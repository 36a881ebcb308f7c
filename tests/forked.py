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
from pathlib import Path
from typing import Any

from virnucpro.workers import processes

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.preloaded"])
# With these, a report has neither figures nor tracks, an evaluation has empty plots, and nobody waits
# for the disk: what a killed process has written stays, and no test cuts the power.
LEFT_OUT = {
    "virnucpro.report.content.MOST_TRACKS": 0,
    "virnucpro.report.page.FEWEST_RECORDS": 10**9,
    "virnucpro.evaluation.plots.image_of": lambda *_: b"",
    "os.fsync": lambda _: None,
}


@dataclass(frozen=True)
class Call:
    """How a command ended."""

    code: int
    out: str
    err: str


def _carry_out(
    words: list[str], streams: list[str], folder: Path, environment: Mapping[str, str]
) -> None:
    """Be ``python -m MODULE WORDS`` with these files as standard streams."""
    # The process that forks may have been started while signals were blocked, as for a worker.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate(streams):
        stream = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOCTTY)
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, "rww"[number]) for number in range(3))
    sys.argv = words
    for name, value in LEFT_OUT.items():
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
    """What ``virnucpro.workers.processes`` starts its processes with, in place of spawning them."""

    def __init__(self, context: Any) -> None:
        self.Pipe, self._process = context.Pipe, context.Process

    def Process(self, target: Callable[..., None], args: tuple[Any, ...], **options: Any) -> Any:
        return self._process(target=_be_child, args=(target, args, dict(os.environ)), **options)


def _be_child(
    target: Callable[..., None], args: tuple[Any, ...], environment: Mapping[str, str]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    # A spawned worker has no files of its parent: one that outlives it for a moment holds no lock.
    for descriptor in Path("/proc/self/fd").glob("*"):
        if descriptor.is_symlink() and str(descriptor.readlink()).endswith("lock"):
            os.close(int(descriptor.name))
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
        terminal: str = "",
    ) -> None:
        """Start it.

        ``env`` is added to the environment. ``terminal`` is the path of a terminal to be used for
        all standard streams, in place of files.
        """
        self._folder = tempfile.TemporaryDirectory()
        self._streams = [Path(self._folder.name, name) for name in ("in", "out", "err")]
        for path in self._streams:
            path.write_text(input if path.name == "in" else "")
        streams = [terminal or str(path) for path in self._streams]
        where = cwd or Path.cwd(), {**os.environ, **(env or {})}
        self._process = CONTEXT.Process(
            target=_carry_out, args=(list(map(str, words)), streams, *where)
        )
        self._process.start()
        self.pid: int = self._process.pid

    @property
    def out(self) -> str:
        """What it has written to standard output."""
        return self._streams[1].read_bytes().decode()

    @property
    def err(self) -> str:
        """What it has written to standard error."""
        return self._streams[2].read_bytes().decode()

    def poll(self) -> int | None:
        """Return the exit code, minus the number of the signal that ended it, or None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float = 300) -> int:
        """Return the exit code when it has ended.

        Raises:
            TimeoutExpired: it has not ended after ``timeout`` seconds.
        """
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("a forked command", timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill it if it still runs, and forget what it has written."""
        self.kill()
        self.wait()
        self._process.close()
        self._folder.cleanup()


def run_forked(*words: object, module: str = "virnucpro", **options: Any) -> Call:
    """Run ``python -m MODULE WORDS`` until it ends; ``options`` are those of ``ForkedCommand``."""
    process = ForkedCommand(module, *words, **options)
    try:
        return Call(process.wait(), process.out, process.err)
    finally:
        process.close()
