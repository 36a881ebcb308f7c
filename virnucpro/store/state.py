"""The state of a run: what its results depend on, and whether a later start may go on with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from virnucpro.contracts import Json
from virnucpro.errors import ResumeRefusedError, UsageError
from virnucpro.layout import Layout, RunLayout
from virnucpro.store import legacy
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import sealed, unsealed
from virnucpro.store.ledger import has_receipts, read_receipts
from virnucpro.store.lock import read_owner
from virnucpro.store.migrations import stamped, upgraded
from virnucpro.store.work import (
    Decision,
    ExistingWork,
    WorkIdentity,
    check_work,
    files_in,
    foreign_files_refusal,
)

INPUT_NAMES = ("input", "second input")
"""The names of the digests of the files of an input."""
MATES, INTERLEAVED = "mates", "interleaved"
"""What the state of a run says where one file has both mates of each pair."""


@dataclass(frozen=True)
class RunState:
    """What an earlier start of a run has to tell a later one.

    Attributes:
        source: the input as given, for messages only.
        analysis: everything that decides the results, by a name for people.
        budgets: batch budgets that were measured, by encoder and kind of device. Batches decide
            the last bits of an embedding: the same ones make the same bytes on the same device.
        mates: the file of the second mates, for messages only; empty for single records.
    """

    source: str
    analysis: Mapping[str, Json]
    budgets: Mapping[str, int] = field(default_factory=dict)
    mates: str = ""

    @property
    def identity(self) -> WorkIdentity:
        """What decides whether the run may go on."""
        return WorkIdentity(f"the run of {self.source}", self.analysis)


def read_state(layout: Layout) -> RunState | None:
    """Return the state of an earlier run of the same STEM; None where there is none.

    A damaged state counts as none: the receipts alone then decide what is done again.

    Raises:
        ResumeRefusedError: a newer version wrote it (exit 3).
    """
    try:
        document = upgraded("run state", unsealed(layout.run_state.read_bytes()), layout.run_state)
        budgets = {
            str(key): value
            for key, value in dict(document.get("budgets", {})).items()
            if isinstance(value, int) and value > 0
        }
        mates = str(document.get("mates", ""))
        return RunState(str(document["source"]), dict(document["analysis"]), budgets, mates)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def write_state(layout: Layout, disk: Disk, state: RunState) -> None:
    """Record what the run depends on, before anything is computed, and whenever a budget is new."""
    document = stamped(
        "run state",
        source=state.source,
        analysis=dict(state.analysis),
        budgets=dict(state.budgets),
        mates=state.mates,
    )
    disk.save(layout.run_state, sealed(document))


def check_run(
    layout: Layout, disk: Disk, wanted: RunState, *, resume: bool = False, force: bool = False
) -> Decision:
    """Decide whether the run may start or go on; see :mod:`virnucpro.store.work`.

    A run of version 1 of the program is taken over only with ``resume``.

    Raises:
        ResumeRefusedError: the earlier run depended on something else, or a newer version wrote
            it (exit 3).
        UsageError: files would be overwritten that are not ours, or are those of a run of version
            1 that is not to be taken over (exit 64).
        OutputError: files cannot be moved aside, or the note about a run of version 1 cannot be
            written.
    """
    try:
        earlier = read_state(layout)
    except ResumeRefusedError:  # written by a newer version
        if not force:
            raise
        newer = ExistingWork(layout.root, layout.previous, layout.owned())
        return check_work(wanted.identity, newer, disk, force=True)
    if _is_new_legacy_run(layout, earlier):
        return _check_legacy(layout, disk, wanted, resume=resume, force=force)
    existing = _existing_run(layout, wanted, earlier)
    return check_work(wanted.identity, existing, disk, resume=resume, force=force)


def refuse_foreign_files(layout: RunLayout, *, resume: bool) -> None:
    """Refuse files that are in the way of a run, as :func:`check_run` will, but at once.

    Of the files, it is not asked where another process works on the run: they come and go.

    Raises:
        ResumeRefusedError: a newer version wrote the run that is there (exit 3).
        UsageError: files would be overwritten that are not ours, or are those of a run of version
            1 that is not to be taken over (exit 64).
    """
    earlier = read_state(layout)
    owner = read_owner(layout.lock)
    if owner is not None and not owner.is_dead:
        return
    if _is_new_legacy_run(layout, earlier):
        _refuse_legacy(layout, accepted=resume)
        return
    wanted = RunState("", {"chunk length": layout.chunk_length})
    if refusal := foreign_files_refusal(_existing_run(layout, wanted, earlier)):
        raise refusal


def _is_new_legacy_run(layout: Layout, earlier: RunState | None) -> bool:
    """Return whether there is a run of version 1 that was not taken over yet."""
    return earlier is None and not has_receipts(layout) and legacy.is_legacy_run(layout)


def _existing_run(layout: Layout, wanted: RunState, earlier: RunState | None) -> ExistingWork:
    """Return what is there of a run of this version."""
    present = _present_files(layout, wanted, earlier)
    files = [path for path in present if path != layout.state and files_in([path])]
    if has_receipts(layout) or layout.legacy_note.exists():
        foreign = _foreign_in_place_of_removed(layout)
        return ExistingWork(
            layout.root,
            layout.previous,
            [path for path in present if path not in foreign],
            foreign,
            identity=earlier.identity if earlier else None,
            finished=layout.run_json.exists() and not layout.failed_fasta.exists(),
        )
    # Nothing was finished: of the files, only those that come first may be ours.
    first = [path for path in files if earlier and path in layout.chunked_files()]
    return ExistingWork(
        layout.root,
        layout.previous,
        [*first, layout.state] if first else [],
        [path for path in files if path not in first],
        identity=earlier.identity if earlier and first else None,
    )


def _present_files(layout: Layout, wanted: RunState, earlier: RunState | None) -> list[Path]:
    """Return what exists of the files of the run, its state last.

    Files of chunks of other lengths than those of the earlier and the present run are not of it:
    ``a_chunked300.fa`` may be the input of another run.
    """
    lengths = {state.analysis.get("chunk length") for state in (wanted, earlier) if state}
    names = {f"{layout.stem}_chunked{length}.fa" for length in lengths}
    others = {path for path in layout.chunked_files() if path.name not in names}
    return [path for path in layout.owned() if path not in others]


def _foreign_in_place_of_removed(layout: Layout) -> list[Path]:
    """Return the files that somebody put where the finished run had removed its own.

    After a kill while they were removed, some of its own are still there.
    """
    stored = read_receipts(layout)
    digests = {
        layout.root / output["file"]: output["sha256"]
        for document in stored.documents.values()
        for output in document["outputs"]
    }
    return [
        path
        for path in sorted(stored.removed & digests.keys())
        if path.is_symlink() or (path.exists() and sha256_of(path) != digests[path])
    ]


def _check_legacy(
    layout: Layout, disk: Disk, wanted: RunState, *, resume: bool, force: bool
) -> Decision:
    """Decide about a run of version 1; one that is taken over is noted before it is changed."""
    _refuse_legacy(layout, accepted=resume or force)
    own_files = [*layout.owned(), layout.legacy_state]
    differing: dict[str, Json] = dict(legacy.changed_settings(layout, wanted.analysis))
    if INPUT_NAMES[1] in wanted.analysis:
        differing[INPUT_NAMES[1]] = None  # version 1 knew no pairs
    identity = WorkIdentity(
        f"a run of {layout.stem} by an earlier version of the program",
        {**wanted.analysis, **differing},
    )
    existing = ExistingWork(layout.root, layout.previous, own_files, identity=identity)
    found = check_work(wanted.identity, existing, disk, resume=resume, force=force)
    if found.decision != "continue":
        return found
    return Decision("continue", legacy.note_features(layout, disk))


def _refuse_legacy(layout: Layout, *, accepted: bool) -> None:
    if not accepted:
        first = [*layout.owned(), layout.legacy_state][0]
        raise UsageError(
            f"{layout.root} already holds files of {layout.stem} that an earlier version of the "
            f"program made ({first.name}, ...): take them over with --resume, or start over "
            f"with --force, which moves them aside"
        )
