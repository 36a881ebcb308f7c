"""Carry out ``rcl predict``: read proteins, find their RCLs, and write the results."""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from virnucpro.events import StepProgress
from virnucpro.io.input_summary import summarise_input
from virnucpro.io.pairs import InputFiles
from virnucpro.layout import STDIN, checkpoint_folder, existing_paths, lock_file
from virnucpro.rcl.output import RESIDUES_AT_A_TIME, RclSummary, notices_of, write_results
from virnucpro.rcl.request import RclFiles, RclRequest, check_names, files_of
from virnucpro.stages.chunking import (
    duplicate_ids_error,
    hashed_input,
    refuse_changed_input,
)
from virnucpro.store.disk import Disk, is_own_file, sha256_of
from virnucpro.store.documents import sealed, unsealed
from virnucpro.store.lock import locked
from virnucpro.store.work import (
    ExistingWork,
    WorkIdentity,
    check_work,
    read_identity,
    save_identity,
)
from virnucpro.version import __version__

STEPS = ("reading", "finding RCLs")
"""What is reported to the screen, one after the other."""


def run_rcl_prediction(
    request: RclRequest,
    progress: StepProgress,
    notify: Callable[[str], None],
    disk: Disk | None = None,
) -> RclSummary:
    """Carry out a request, or say that it was carried out before.

    ``notify`` is called with sentences for the user.

    Raises:
        VirNucProError: something is missing, damaged or in the way; no file is left half written.
    """
    disk = disk or Disk()
    files = files_of(request)
    check_names(request, files)
    state = checkpoint_folder(request.root) / "rcl" / request.stem
    with locked(lock_file(request.root, f"{request.stem}_rcl"), "these proteins"):
        for folder in (request.root, state):
            disk.sweep(folder, {path.name for path in (*files.results, files.record)} | {"input"})
        source = Path(request.source)
        if request.source == STDIN:
            source = state / "input"
            with disk.create(source) as out:
                while block := sys.stdin.buffer.read(1 << 20):
                    out.write(block)
        try:
            summary = _predicted(request, source, files, state, progress, notify, disk)
        finally:
            if request.source == STDIN:
                disk.remove(source)
                disk.remove_folder(state)
    return summary


def _predicted(
    request: RclRequest,
    source: Path,
    files: RclFiles,
    state: Path,
    progress: StepProgress,
    notify: Callable[[str], None],
    disk: Disk,
) -> RclSummary:
    """See what is there, compute, and write all files, the record last."""
    began = time.monotonic()
    seen = hashed_input(source)
    identity = WorkIdentity(
        f"the RCL prediction of {request.source}",
        {
            "input": seen.sha256,
            "model": request.finder.sha256,
            **request.settings,
            "duplicate ids": request.duplicate_ids,
            "files": sorted(path.name for path in files.results),
        },
    )
    begun_file = state / "begun.json"
    existing, earlier = _existing_prediction(files, state, begun_file)
    admission = check_work(identity, existing, disk, force=request.force)
    if admission.decision == "finished" and earlier is not None:
        notify("nothing to compute: this prediction was finished before, its files are intact")
        return earlier
    if admission.notice and request.force:
        notify(admission.notice)
    limit = shutil.disk_usage(request.root).free
    progress.begin(STEPS[0], 1)
    inputs = summarise_input(InputFiles(source), limit=limit, molecule="protein")
    if inputs.duplicates and request.duplicate_ids == "error":
        raise duplicate_ids_error(InputFiles(Path(request.source)), inputs, "protein")
    save_identity(begun_file, identity, disk)
    progress.begin(STEPS[1], inputs.bases)
    # Not more processes than blocks: each takes seconds to start.
    blocks = max(inputs.records / request.proteins_at_a_time, inputs.bases / RESIDUES_AT_A_TIME)
    devices = request.devices[: math.ceil(blocks)]
    if len(devices) > 1:
        names = ", ".join(device.name for device in devices)
        notify(f"computing in {len(devices)} processes: {names}")
    summary = write_results(request, source, inputs, files, devices, limit, progress, disk)
    refuse_changed_input([seen])
    summary.files = files.results
    summary.notices = notices_of(summary, request)
    record = {
        "schema": 1,
        "producer": f"virnucpro {__version__}",
        "label": identity.label,
        "settings": identity.settings,
        "command": list(request.command),
        "input": request.source,
        "model": {"name": request.finder.label, "sha256": request.finder.sha256},
        "devices": [device.name for device in devices],
        "proteins": summary.proteins,
        "statuses": dict(summary.statuses),
        "rcl_residues": summary.rcl_residues,
        "confidence": summary.confidence,
        "notices": summary.notices,
        "files": {path.name: sha256_of(path) for path in files.results},
        "seconds": round(time.monotonic() - began, 3),
    }
    disk.save(files.record, sealed(record))
    disk.remove(begun_file)
    disk.remove_folder(state)
    disk.remove_folder(state.parent)
    return summary


def _files_of(begun: WorkIdentity, record: Path) -> set[Path]:
    """Return the files that begun work names; none where it names anything but files beside it."""
    try:
        return {record.with_name(str(name)) for name in begun.settings["files"]}
    except (LookupError, TypeError, ValueError):
        return set()


def _existing_prediction(
    files: RclFiles, state: Path, begun_file: Path
) -> tuple[ExistingWork, RclSummary | None]:
    """Return what is there of an earlier prediction of this name, and what came out of it.

    A file is proved to be ours by its SHA-256 in the record, or, after an interruption, by its name
    in the identity of the work that was begun.
    """
    root = files.record.parent
    planned = existing_paths(*files.results, files.record)
    begun = read_identity(begun_file)
    own = _files_of(begun, files.record) if begun else set()
    identity: WorkIdentity | None = None
    summary: RclSummary | None = None
    finished = False
    try:
        document = unsealed(files.record.read_bytes())
        # A name with a slash is none that this program wrote, and a ValueError.
        digests = {
            files.record.with_name(str(name)): str(value)
            for name, value in document["files"].items()
        }
        identity = WorkIdentity(str(document["label"]), dict(document["settings"]))
        summary = RclSummary(
            int(document["proteins"]),
            Counter(document["statuses"]),
            int(document["rcl_residues"]),
            float(document["confidence"]),
            notices=[str(notice) for notice in document["notices"]],
            files=list(digests),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        summary = None
    else:
        intact = {
            path
            for path, digest in digests.items()
            if is_own_file(path) and sha256_of(path) == digest
        }
        finished = len(intact) == len(digests)
        own |= intact | {files.record}
        planned = existing_paths(*planned, *digests)
    if begun:
        own.add(files.record)
    work = ExistingWork(
        root,
        state / "previous",
        own_files=[path for path in planned if path in own and is_own_file(path)],
        foreign_files=[path for path in planned if path not in own or not is_own_file(path)],
        identity=identity,
        finished=finished,
    )
    return work, summary
