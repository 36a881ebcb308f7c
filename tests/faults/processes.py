"""Look after other processes, by number."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def family(pid: int) -> set[int]:
    """The processes that descend from ``pid``."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return set()
    children = {int(word) for word in text.split()}
    return children.union(*(family(child) for child in children))


def running(pid: int) -> bool:
    """Whether a process is there, and not just waiting to be collected."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def files_under(folder: Path, suffix: str) -> set[Path]:
    """The files that end so, however deep; folders may be removed meanwhile.

    ``Path.rglob`` raises where a folder goes between two looks at it.
    """
    return {
        Path(where, name)
        for where, _, names in os.walk(folder)
        for name in names
        if name.endswith(suffix)
    }


def until(true: Callable[[], object], seconds: float = 200.0) -> None:
    """Wait for something; an error where it takes longer."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "this takes too long"
        time.sleep(0.01)
        time.sleep(0.01)
