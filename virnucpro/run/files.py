"""The files of a run before and after its stages: is there room, what is swept, what is removed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from virnucpro.contracts import Stage
from virnucpro.errors import OutputError
from virnucpro.events import Emit, Notice
from virnucpro.formatting import byte_size
from virnucpro.layout import MOLECULES, Layout
from virnucpro.stages.prediction import ScoringStage
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger


def sweep(layout: Layout, disk: Disk) -> None:
    """Remove temporary files of earlier, killed processes."""
    disk.sweep(layout.root, layout.top_names())
    disk.sweep(layout.home)
    own = (layout.merged_folder, *(layout.folder(molecule) for molecule in MOLECULES))
    for folder in own:
        disk.sweep(folder)
    if layout.state.is_dir():
        for folder in (layout.state, *layout.state.rglob("*/")):
            if folder.is_dir():
                disk.sweep(folder)


def check_space(layout: Layout, stages: Sequence[Stage], ledger: Ledger, emit: Emit) -> None:
    """Say how much the large outputs of the stages take; stop now if the disk cannot hold them.

    Raises:
        OutputError: there is too little space (exit 6).
    """
    needs = [need for stage in stages if (need := stage.disk_need(ledger))]
    total, purpose = sum(need.bytes for need in needs), needs[0].purpose
    missing = missing_bytes(layout, total)
    free = shutil.disk_usage(layout.root).free
    emit(Notice("info", f"{purpose} take {byte_size(total)} ({byte_size(free)} are free)"))
    if missing > free:
        raise OutputError(
            f"{layout.root} has {byte_size(free)} free, but {purpose} still take "
            f"{byte_size(missing)}: free some space or move the folder, then run the same command "
            f"again"
        )


def missing_bytes(layout: Layout, total: int) -> int:
    """Return how many of ``total`` bytes of features are not on the disk yet."""
    return max(0, total - sum(path.stat().st_size for path in layout.feature_files()))


def tidy_up(
    layout: Layout, disk: Disk, stages: Sequence[Stage], ledger: Ledger, *, keep_intermediate: bool
) -> None:
    """Remove what a run without failures does not need any more; its receipts stay as proof."""
    if keep_intermediate:
        return
    intermediate = {stage.name for stage in stages if stage.intermediate} | {ScoringStage.name}
    kept = frozenset(path for stage in stages for path in stage.kept_outputs)
    ledger.remove([(path, r) for path, r in ledger.receipts() if r.stage in intermediate], kept)
    for molecule in MOLECULES:
        disk.remove_folder(layout.folder(molecule))
