"""The folder of an evaluation: locked, and only written where nothing of the user is in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from virnucpro.contracts import Json
from virnucpro.layout import checkpoint_folder, existing_paths, lock_file
from virnucpro.store.disk import Disk
from virnucpro.store.documents import parse_json
from virnucpro.store.lock import locked
from virnucpro.store.work import ExistingWork, WorkIdentity, check_work

Settings = Mapping[str, Json]


@contextmanager
def evaluation_folder(
    report: Path,
    files: Sequence[str],
    settings: Settings,
    settings_of: Callable[[Json], Settings],
    notify: Callable[[str], None],
    *,
    force: bool,
) -> Iterator[Disk]:
    """Lock the folder of a report, and check that its ``files`` may be written.

    ``settings`` are what decides the results, and ``settings_of`` returns the same of an earlier
    report, which proves that the files are ours.
    """
    disk, folder = Disk(), report.parent
    label, previous = f"the evaluation in {folder.name}", f"{report.stem}.previous"
    with locked(lock_file(folder, report.name), "this evaluation"):
        disk.sweep(folder, files)
        there = existing_paths(*(folder / name for name in files))
        place = (folder, checkpoint_folder(folder) / previous)
        try:
            earlier = WorkIdentity(label, settings_of(parse_json(report.read_bytes())))
            existing = ExistingWork(*place, own_files=there, identity=earlier)
        except (OSError, ValueError, LookupError, TypeError):
            existing = ExistingWork(*place, foreign_files=there)
        work = WorkIdentity(label, settings)
        decision, notice = check_work(work, existing, disk, force=force)
        if notice:
            notify(notice if decision == "start" else f"{label} is made again")
        yield disk
