"""Ray nodes on this machine, each in processes of its own: to be added, killed and counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.contract.ray_cluster import OBJECT_STORE, SETTINGS
from tests.faults.processes import family, running, until

RAY = Path(sys.executable).with_name("ray")
ROOT = Path(__file__).parents[2]
PORT = 6391
ADDRESS = f"127.0.0.1:{PORT}"
# Workers import these tests.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), **SETTINGS}


class Node:
    """A node of a cluster; the first one is the head."""

    def __init__(self, folder: Path, output: Path, *, head: bool = False) -> None:
        """Start the node with one processor; :meth:`wait` returns when it is there."""
        options = ["--num-cpus=1", "--num-gpus=0", f"--object-store-memory={OBJECT_STORE}"]
        if head:
            options += ["--head", f"--port={PORT}", "--include-dashboard=false"]
            options += [f"--temp-dir={folder}", "--ray-client-server-port=20091"]
        else:
            options += [f"--address={ADDRESS}"]
        self._output = output
        with output.open("w") as stream:
            self.process = subprocess.Popen(
                [RAY, "start", "--block", "--disable-usage-stats", *options],
                env=ENVIRONMENT,
                stdout=stream,
                stderr=stream,
            )

    def wait(self) -> None:
        """Wait until the node is there, or its process has ended."""
        until(lambda: "Ray runtime started" in self._output.read_text() or self.process.poll())

    def kill(self) -> None:
        """End all processes of the node by SIGKILL, as a power cut does."""
        for pid in [self.process.pid, *family(self.process.pid)]:
            if running(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class LocalCluster:
    """Nodes that are stopped with the block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.nodes: list[Node] = []

    def add(self) -> Node:
        """Start another node."""
        output = self._folder / f"output{len(self.nodes)}"
        # First in the list: a node that does not start is stopped with the others.
        self.nodes.append(Node(self._folder, output, head=not self.nodes))
        self.nodes[-1].wait()
        return self.nodes[-1]

    @property
    def workers(self) -> list[int]:
        """The processes of actors of this program."""
        everyone = [pid for node in self.nodes for pid in family(node.process.pid)]
        return [pid for pid in everyone if b"VirNucProWorker" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@contextmanager
def local_nodes(folder: Path, count: int) -> Iterator[LocalCluster]:
    """Have a cluster of ``count`` nodes in the block."""
    cluster = LocalCluster(folder)
    try:
        for _ in range(count):
            cluster.add()
        yield cluster
    finally:
        for node in reversed(cluster.nodes):
            node.kill()
