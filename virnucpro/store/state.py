"""The state of a run: what its results depend on, and whether a later start may go on with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import msgspec

from virnucpro.contracts import Json
from virnucpro.errors import ResumeRefusedError, UsageError
from virnucpro.layout import Layout, RunLayout
from virnucpro.store import legacy
from virnucpro.store.disk import Disk
from virnucpro.store.documents import read_document, sealed, stamped
from virnucpro.store.ledger import Ledger, has_receipts
from virnucpro.store.lock import read_owner
from virnucpro.store.work import (
    Decision,
    ExistingWork,
    WorkIdentity,
    check_work,
    files_in,
    refuse_foreign,
)

INPUT_NAMES = ("input", "second input")
"""The names of the digests of the files of an input."""
MATES, INTERLEAVED = "mates", "interleaved"
"""What the state of a run says where one file has both mates of each pair."""


@dataclass(frozen=True)
class RunState:
    """What an earlier start of a run has to tell a later one."""

    source: str  # the input as given, for messages only
    analysis: Mapping[str, Json]  # everything that decides the results, by a name for people
    # Batch budgets that were measured, by encoder and kind of device. Batches decide the last bits
    # of an embedding: the same ones make the same bytes on the same device.
    budgets: Mapping[str, int] = field(default_factory=dict)
    mates: str = ""  # the file of the second mates, for messages only; empty for single records

    @property
    def identity(self) -> WorkIdentity:
        """What decides whether the run may go on."""
        return WorkIdentity(f"the run of {self.source}", self.analysis)


def read_state(layout: Layout) -> RunState | None:
    """Return the state of an earlier run of the same STEM; a damaged one counts as none."""
    try:
        return msgspec.convert(read_document("run state", layout.run_state), RunState)
    except (OSError, ValueError):
        return None


def write_state(layout: Layout, disk: Disk, state: RunState) -> None:
    """Record what the run depends on, before anything is computed, and whenever a budget is new."""
    disk.save(layout.run_state, sealed(stamped("run state", **asdict(state))))


def check_run(
    layout: Layout, disk: Disk, wanted: RunState, *, resume: bool = False, force: bool = False
) -> Decision:
    """Do what :func:`check_work` does; a run of version 1 is taken over only with ``resume``."""
    try:
        existing = _existing_run(layout, wanted, accepted=resume or force)
    except ResumeRefusedError:  # written by a newer version
        if not force:
            raise
        existing = ExistingWork(layout.root, layout.previous, layout.owned())
    return check_work(wanted.identity, existing, disk, resume=resume, force=force)


def refuse_early(layout: RunLayout, *, resume: bool) -> None:
    """Refuse files that are in the way of a run, as :func:`check_run` will, but at once.

    Nothing is refused where another process works on the run, because files come and go.
    """
    owner = read_owner(layout.lock)
    if owner is None or owner.is_dead:
        wanted = RunState("", {"chunk length": layout.chunk_length})
        refuse_foreign(_existing_run(layout, wanted, accepted=resume))


def _existing_run(layout: Layout, wanted: RunState, *, accepted: bool) -> ExistingWork:
    """Return what is there of the run; ``accepted`` says whether it may be one of version 1."""
    earlier = read_state(layout)
    if legacy.is_new_legacy_run(layout):
        return _legacy_run(layout, wanted, accepted=accepted)
    # Files of chunks of another length are not of this run: they may be the input of another one.
    lengths = {state.analysis.get("chunk length") for state in (wanted, earlier) if state}
    names = {f"{layout.stem}_chunked{length}.fa" for length in lengths}
    chunked = layout.chunked_files()
    present = [path for path in layout.owned() if path not in chunked or path.name in names]
    if has_receipts(layout):
        foreign = Ledger(layout).foreign_files()
        own = [path for path in present if path not in foreign]
    else:  # Nothing was finished: of the files, only those that come first may be ours.
        own = [path for path in present if earlier and path in chunked]
        foreign = [p for p in present if p not in own and p != layout.state and files_in([p])]
        own += [layout.state] if own else []
    return ExistingWork(
        layout.root,
        layout.previous,
        own,
        foreign,
        identity=earlier.identity if earlier and own else None,
        finished=layout.run_json.exists() and not layout.failed_fasta.exists(),
    )


def _legacy_run(layout: Layout, wanted: RunState, *, accepted: bool) -> ExistingWork:
    own_files = [*layout.owned(), layout.legacy_state]
    if not accepted:
        raise UsageError(
            f"{layout.root} already holds files of {layout.stem} that an earlier version of the "
            f"program made ({own_files[0].name}, ...): take them over with --resume, or start over "
            f"with --force, which moves them aside"
        )
    settings = {**wanted.analysis, **legacy.changed_settings(layout, wanted.analysis)}
    if INPUT_NAMES[1] in settings:
        settings[INPUT_NAMES[1]] = None  # version 1 knew no pairs
    label = f"a run of {layout.stem} by an earlier version of the program"
    identity = WorkIdentity(label, settings)
    return ExistingWork(layout.root, layout.previous, own_files, identity=identity)
