"""What the program takes of the host: memory of all its processes, and the machine's load."""

from __future__ import annotations

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
RSS_PAGES = 1  # second field of /proc/PID/statm (proc(5))


@dataclass(frozen=True)
class HostReading:
    """Resident bytes of this process and its children, and the load average of a minute."""

    memory: int
    load: float | None


def read_host(proc: Path = PROC) -> HostReading:
    """The host now. Pages that processes share are counted in each of them."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    pid = os.getpid()
    own = _resident(proc / str(pid))
    if own is None:  # no /proc: the peak is the best there is; macOS counts bytes, others kB
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return HostReading(peak if sys.platform == "darwin" else peak * 1024, load)
    children = (_resident(proc / child) or 0 for child in _children(proc / str(pid)))
    return HostReading(own + sum(children), load)


def _resident(process: Path) -> int | None:
    try:
        pages = (process / "statm").read_text().split()[RSS_PAGES]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _children(process: Path) -> list[str]:
    """Process ids, as text. Asking multiprocessing instead would reap those that just died."""
    found: list[str] = []
    for path in process.glob("task/*/children"):
        try:
            found += path.read_text().split()
        except OSError:  # the thread has ended meanwhile
            continue
    return found
