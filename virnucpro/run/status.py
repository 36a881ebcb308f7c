"""How far the runs of an output directory are: what they have written down, and who is at work.

A quick look that disturbs nobody: no lock is kept, nothing is written, no file of a run is read but
its state. A later start checks contents. Imports neither torch nor numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from virnucpro.contracts import Json
from virnucpro.layout import Layout, OutputFolder
from virnucpro.store.lock import A_RUN, holder
from virnucpro.store.work import RunProgress, has_begun, read_progress, read_state


def statuses(root: Path) -> list[dict[str, Json]]:
    """Return the status of every run in the output directory ``root``, by name.

    These are the documents that ``virnucpro status --json`` prints; None stands for unknown.
    """
    names = sorted(path.name for path in OutputFolder(root).runs.glob("*"))
    return [status for name in names if (status := _run_status(Layout(root, name)))]


def _run_status(layout: Layout) -> dict[str, Json] | None:
    """Return what is known about a run; None where there is none."""
    owner = holder(layout.lock)
    status: dict[str, Json] = {
        "stem": layout.stem,
        "state": "running",
        "input": None,
        "owner": owner and asdict(owner),
        "ended": None,
        "stages": [],
        "failed": [],
        "seconds_left": None,
    }
    if not has_begun(layout):
        return status if owner is not None and owner.work == A_RUN else None
    earlier = read_state(layout)
    progress = read_progress(layout) or RunProgress([], [], is_finished=False)
    stages, failed = [asdict(row) for row in progress.stages], progress.failed
    is_through = all(row["files"] == row["files_done"] for row in stages)
    seconds = _seconds_left([row for row in stages if row["embeds"]])
    status |= {"input": earlier and earlier.source, "stages": stages, "failed": failed}
    status["seconds_left"] = None if seconds is None else round(seconds, 1)
    if owner is None:
        ended = "partial" if failed and is_through else "interrupted"
        status["state"] = "finished" if progress.is_finished else ended
        with suppress(OSError):  # the last line of the log says what ended the last start
            *_, last = layout.log.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
            status["ended"] = last.partition(" ended by ")[2] or None
    return status


def _seconds_left(rows: Sequence[Json]) -> float | None:
    """Return what the rest of the embedding takes on one device, at the rate of what is done."""
    seconds = 0.0
    for row in rows:
        left = None if row["sequences"] is None else row["sequences"] - row["sequences_done"]
        if left is None or (left and not row["seconds"]):
            return None
        seconds += left * row["seconds"] / max(row["sequences_done"], 1)
    return seconds
