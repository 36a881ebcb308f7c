"""Whether the files that are there are the same work, and what a command may do then.

Every command that writes results asks :func:`check_work` before it writes anything. What happens
then is a table in ``docs/checkpoints.md``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from virnucpro.contracts import Json
from virnucpro.errors import ResumeRefusedError, UsageError
from virnucpro.events import Emit, Notice
from virnucpro.layout import CHECKPOINTS, Layout, existing_paths
from virnucpro.store import legacy
from virnucpro.store.disk import Disk, is_own_file, refuse_links
from virnucpro.store.documents import parse_json, read_kept, sealed, stamped
from virnucpro.store.ledger import Ledger, has_receipts
from virnucpro.store.lock import holder

NAMED_FILES = 5  # files that a message lists before it only counts the others
LONGEST_VALUE = 200  # letters of a setting in a message
# The names of files that a run writes into its folders, unfinished ones too.
OWN_NAME = re.compile(
    r"output_\d+(\.fa|_\w+\.pt(\.done)?)|prediction_results(\.txt|_highestscore\.csv)|\..+\.tmp"
)


@dataclass(frozen=True)
class WorkIdentity:
    """What the results of a piece of work depend on."""

    label: str  # the work in words, for messages: ``the run of /data/sample.fa``
    # Everything that decides the results, by a name for people: digests of inputs and models,
    # parameters. Neither paths nor hardware belong here.
    settings: Mapping[str, Json]


@dataclass(frozen=True)
class ExistingWork:
    """What a command found where it would write."""

    place: Path  # the output directory or file, for messages
    previous: Path  # folder that takes what ``--force`` moves aside
    own_files: Sequence[Path] = ()  # proved to be of this command; what proves it comes last
    foreign_files: Sequence[Path] = ()  # the others that would be overwritten or removed
    # Of the earlier work; None where there was none, or where only its receipts are left, which
    # then decide task by task what is done again.
    identity: WorkIdentity | None = None
    finished: bool = False  # whether the earlier work came to its end
    option: str = "--output-dir"  # what names another place on the command line
    holds_others: bool = False  # whether somebody else has put files into folders of ours


Decision = tuple[Literal["start", "continue", "finished"], str | None]
"""Whether to ``start``, ``continue`` or check what is ``finished``, and what users are told."""


def check_work(
    wanted: WorkIdentity,
    existing: ExistingWork,
    disk: Disk,
    *,
    resume: bool = False,
    force: bool = False,
) -> Decision:
    """Decide whether the work may start or go on; moves earlier files aside under ``force``.

    ``resume`` only decides what is said where there is nothing to continue.

    Raises:
        ResumeRefusedError: the earlier work depended on something else, or a folder of its state
            is a symbolic link (exit 3).
        UsageError: files that are not ours would be overwritten (exit 64).
        OutputError: the files cannot be moved aside.
    """
    refuse_links(existing.previous)
    if force:
        folder = move_aside(existing, disk)
        if folder is None:
            return "start", None
        return "start", f"--force: starting over; what was there is now in {folder}"
    refuse_foreign(existing)
    earlier = existing.identity or wanted
    if changes := _changes(earlier.settings, wanted.settings):
        instead = f", not {wanted.label}" if wanted.label != earlier.label else ""
        raise ResumeRefusedError(
            f"{existing.place} holds {earlier.label}{instead}; the results would differ:\n"
            f"{changes}repeat the command with the earlier input and settings, choose another "
            f"{existing.option}, or start over with --force, which moves aside what is there"
        )
    if not existing.own_files:
        nothing = f"nothing to resume in {existing.place}: starting from the beginning"
        return "start", nothing if resume else None
    if existing.finished:
        return "finished", f"{earlier.label} is finished: its results are checked"
    return "continue", f"going on with {earlier.label}"


def _changes(before: Mapping[str, Json], after: Mapping[str, Json]) -> str:
    """Return a line per setting that differs, also where only the earlier work knows it."""
    lines = ""
    for name in dict.fromkeys([*after, *before]):
        # As JSON has them: what was read from a file compares equal to what was written.
        was, now = (json.dumps(values.get(name), sort_keys=True) for values in (before, after))
        if was != now:
            lines += f"  {name}: was {_short(was)}, is {_short(now)}\n"
    return lines


def _short(text: str) -> str:
    """Return a JSON value for a message; of a digest only the beginning."""
    text = {"null": "not set", "true": "on", "false": "off"}.get(text, text.strip('"'))
    if len(text) == 64:
        return f"sha256 {text[:12]}..."
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def refuse_foreign(existing: ExistingWork, *, force: bool = True) -> None:
    """Raise UsageError where files that are not ours would be overwritten.

    ``force`` says whether the command has the option ``--force``.
    """
    if not existing.foreign_files:
        return
    place = existing.place
    files = sorted(files_in(existing.foreign_files))
    names = [str(f.relative_to(place) if place in f.parents else f) for f in files]
    more = len(names) - NAMED_FILES
    listed = ", ".join(names[:NAMED_FILES]) + (f" and {more:,} more" if more > 0 else "")
    advice = f"move them away or choose another {existing.option}"
    if force:
        advice += f", or start over with --force, which moves them to {existing.previous.parent}"
    raise UsageError(
        f"{place} already holds files that this command would overwrite and that are not "
        f"its own: {listed}; {advice}"
    )


def refuse_other_json(path: Path | None, keys: Sequence[str], option: str) -> None:
    """Raise UsageError where a JSON file in the way does not have the ``keys`` of our own."""
    if path is None:
        return
    with suppress(OSError, ValueError, TypeError):
        if is_own_file(path) and dict(parse_json(path.read_bytes())).keys() >= set(keys):
            return
    existing = ExistingWork(path.parent, path.parent, (), existing_paths(path), option=option)
    refuse_foreign(existing, force=False)


def files_in(paths: Sequence[Path]) -> list[Path]:
    """Return the files among ``paths`` and below the folders among them; links count as files."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            files += files_in(sorted(path.iterdir()))
        else:
            files += existing_paths(path)
    return files


def move_aside(existing: ExistingWork, disk: Disk) -> Path | None:
    """Move earlier files into ``existing.previous``; returns the folder, None for no files.

    Of our own work the latest one is kept. A folder that took foreign files is never removed:
    they go to ``previous`` with a number.
    """
    paths = [*existing.foreign_files, *existing.own_files]
    # Files of one name in several folders of the run stay apart: their folders move.
    paths = [path for path in paths if not set(paths) & set(path.parents)]
    previous, number = existing.previous, 1
    if not paths:
        return None
    folder = previous
    if existing.foreign_files or existing.holds_others:
        while (folder := previous.with_name(f"{previous.name}.{number}")).exists():
            number += 1
    if (folder / paths[-1].name).exists():  # otherwise an earlier move was cut short: it goes on
        disk.remove_tree(folder)
    disk.make_folder(folder)
    for path in paths:
        disk.remove_tree(folder / path.name)
        disk.move(path, folder / path.name)
    return folder


def make_way(path: Path, disk: Disk, *, force: bool = True, option: str = "--output-dir") -> None:
    """Move a file aside that is not the program's own; without ``force``, refuse to replace it."""
    previous = path.absolute().parent / CHECKPOINTS / f"{path.name}.previous"
    existing = ExistingWork(path.parent, previous, (), existing_paths(path), option=option)
    check_work(WorkIdentity("the file", {}), existing, disk, force=force)


# --- the state of a run: what its results depend on, and whether a later start may go on with it

INPUT_NAMES = ("input", "second input")
"""The names of the digests of the files of an input."""
MATES, INTERLEAVED = "mates", "interleaved"
"""What the state of a run says where one file has both mates of each pair."""


@dataclass(frozen=True)
class RunState:
    """What an earlier start of a run has to tell a later one."""

    source: str  # the file of the input, for messages and ``status`` only
    analysis: Mapping[str, Json]  # everything that decides the results, by a name for people
    # Batch budgets that were measured, by encoder and kind of device. Batches decide the last bits
    # of an embedding: the same ones make the same bytes on the same device.
    budgets: Mapping[str, int] = field(default_factory=dict)
    mates: str = ""  # the file of the second mates, likewise; empty for single records
    sizes: Sequence[int] = ()  # of these files, in bytes; empty where an older version began

    @property
    def identity(self) -> WorkIdentity:
        """What decides whether the run may go on."""
        return WorkIdentity(f"the run of {self.source}", self.analysis)


def read_state(layout: Layout) -> RunState | None:
    """Return the state of an earlier run of the same STEM; a damaged one counts as none."""
    return read_kept("run state", layout.run_state, RunState)


def write_state(layout: Layout, disk: Disk, state: RunState) -> None:
    """Record what the run depends on, before anything is computed, and whenever a budget is new."""
    disk.save(layout.run_state, sealed(stamped("run state", **asdict(state))))


def check_run(
    layout: Layout, disk: Disk, wanted: RunState, emit: Emit, *, resume: bool, force: bool
) -> RunState:
    """Do what :func:`check_work` does; a run of version 1 is taken over only with ``resume``.

    Writes the state of the run, with the batch budgets of an earlier start, and returns it.
    """
    try:
        existing = _existing_run(layout, wanted, accepted=resume or force)
    except ResumeRefusedError:  # written by a newer version
        if not force:
            raise
        existing = ExistingWork(layout.root, layout.previous, layout.owned())
    _, notice = check_work(wanted.identity, existing, disk, resume=resume, force=force)
    if notice:
        emit(Notice("info", notice))
    earlier = read_state(layout)  # None where it was moved aside just now
    state = replace(wanted, budgets=earlier.budgets if earlier else {})
    write_state(layout, disk, state)
    return state


def refuse_early(layout: Layout, *, resume: bool) -> None:
    """Refuse files that are in the way of a run, as :func:`check_run` will, but at once.

    Nothing is refused where another process works on the run, because files come and go.
    """
    if holder(layout.lock) is None:
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
    chunked, folders = layout.chunked_files(), [*layout.folders.values(), layout.merged_folder]
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
        holds_others=not all(OWN_NAME.fullmatch(path.name) for path in files_in(folders)),
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
