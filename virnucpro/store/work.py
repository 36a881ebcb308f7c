"""Whether the files that are there are the same work, and what a command may do then.

Every command that writes results asks :func:`check_work` before it writes anything:

===========================================  =====================================================
what is there                                what happens
===========================================  =====================================================
nothing                                      the work starts
unfinished work of the same identity         it goes on, with ``--resume`` or without
finished work of the same identity           the command says so, and checks it
work of another identity                     ``ResumeRefusedError`` (exit 3), naming what changed
files that are not proved to be ours         ``UsageError`` (exit 64), naming them
any of these, with ``--force``               everything is moved aside, and the work starts
===========================================  =====================================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from virnucpro.contracts import Json
from virnucpro.errors import ResumeRefusedError, UsageError
from virnucpro.store.disk import Disk, is_own_file, refuse_links
from virnucpro.store.documents import parse_json, sealed, unsealed
from virnucpro.store.migrations import stamped, upgraded

NAMED_FILES = 5  # files that a message lists before it only counts the others
NAMED_CHANGES = 20  # the same of settings that differ
LONGEST_VALUE = 200  # letters of a setting in a message


@dataclass(frozen=True)
class WorkIdentity:
    """What the results of a piece of work depend on.

    Attributes:
        label: the work in words, for messages: ``the run of /data/sample.fa``.
        settings: everything that decides the results, by a name for people: digests of inputs and
            models, parameters. Neither paths nor hardware belong here.
    """

    label: str
    settings: Mapping[str, Json]

    def changes_since(self, earlier: WorkIdentity) -> list[str]:
        """Return a line per setting that differs, also where only the earlier work knows it."""
        names = dict.fromkeys([*self.settings, *earlier.settings])
        values = ((name, earlier.settings.get(name), self.settings.get(name)) for name in names)
        return [
            f"  {name}: was {_short(was)}, is {_short(now)}"
            for name, was, now in values
            # As JSON has them: what was read from a file compares equal to what was written.
            if json.dumps(was, sort_keys=True) != json.dumps(now, sort_keys=True)
        ]


@dataclass(frozen=True)
class ExistingWork:
    """What a command found where it would write.

    Attributes:
        place: the output directory or file, for messages.
        previous: folder that takes what ``--force`` moves aside.
        own_files: files and folders that an earlier start of this command is proved to have made,
            those that prove it last.
        foreign_files: the other files and folders that would be overwritten or removed.
        identity: of the earlier work; None where there was none, or where only its receipts are
            left, which then decide task by task what is done again.
        finished: whether the earlier work came to its end.
        option: what names another place on the command line.
    """

    place: Path
    previous: Path
    own_files: Sequence[Path] = ()
    foreign_files: Sequence[Path] = ()
    identity: WorkIdentity | None = None
    finished: bool = False
    option: str = "--output-dir"


class Decision(NamedTuple):
    """Whether to ``start`` at the beginning, ``continue``, or check what is ``finished``.

    ``notice`` is a sentence for the user; None where nothing needs to be said.
    """

    decision: Literal["start", "continue", "finished"]
    notice: str | None = None


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
    refuse_links(existing.previous, _moving_folder(existing))
    if force:
        folder = move_aside(existing, disk)
        if folder is None:
            return Decision("start")
        return Decision("start", f"--force: starting over; what was there is now in {folder}")
    if refusal := foreign_files_refusal(existing) or _changes_refusal(wanted, existing):
        raise refusal
    if not existing.own_files:
        nothing = f"nothing to resume in {existing.place}: starting from the beginning"
        return Decision("start", nothing if resume else None)
    label = (existing.identity or wanted).label
    if existing.finished:
        return Decision("finished", f"{label} is finished: its results are checked")
    return Decision("continue", f"going on with {label}")


def check_evaluation(
    wanted: WorkIdentity, existing: ExistingWork, disk: Disk, *, force: bool = False
) -> str | None:
    """Do what :func:`check_work` does for an evaluation, which is always made anew.

    Returns what a person should know, if anything.

    Raises:
        VirNucProError: see :func:`check_work`.
    """
    decision, notice = check_work(wanted, existing, disk, force=force)
    return notice if decision == "start" else f"{wanted.label} is made again"


def foreign_files_refusal(existing: ExistingWork, *, force: bool = True) -> UsageError | None:
    """Return the refusal to overwrite files that are not ours; None where there are none.

    ``force`` says whether the command has the option ``--force``.
    """
    if not existing.foreign_files:
        return None
    place = existing.place
    files = sorted(files_in(existing.foreign_files))
    names = [str(f.relative_to(place) if place in f.parents else f) for f in files]
    more = len(names) - NAMED_FILES
    listed = ", ".join(names[:NAMED_FILES]) + (f" and {more:,} more" if more > 0 else "")
    advice = f"move them away or choose another {existing.option}"
    if force:
        advice += f", or start over with --force, which moves them to {existing.previous.parent}"
    return UsageError(
        f"{place} already holds files that this command would overwrite and that are not "
        f"its own: {listed}; {advice}"
    )


def refuse_other_json(path: Path | None, keys: Sequence[str], option: str) -> None:
    """Refuse to write a JSON file over one that does not have the ``keys`` of our own.

    Raises:
        UsageError: it is another file (exit 64).
    """
    if path is None or not files_in([path]):
        return
    try:
        document = parse_json(path.read_bytes()) if is_own_file(path) else None
    except (OSError, ValueError):
        document = None
    if not isinstance(document, dict) or not set(keys) <= document.keys():
        existing = ExistingWork(path.parent, path.parent, foreign_files=[path], option=option)
        refusal = foreign_files_refusal(existing, force=False)
        assert refusal is not None
        raise refusal


def _changes_refusal(wanted: WorkIdentity, existing: ExistingWork) -> ResumeRefusedError | None:
    changes = wanted.changes_since(existing.identity) if existing.identity else []
    if existing.identity is None or not changes:
        return None
    if len(changes) > NAMED_CHANGES:
        changes[NAMED_CHANGES:] = [f"  and {len(changes) - NAMED_CHANGES:,} more"]
    earlier = existing.identity.label
    instead = f", not {wanted.label}" if wanted.label != earlier else ""
    return ResumeRefusedError(
        "\n".join(
            [f"{existing.place} holds {earlier}{instead}; the results would differ:", *changes]
        )
        + f"\nrepeat the command with the earlier input and settings, choose another "
        f"{existing.option}, or start over with --force, which moves aside what is there"
    )


def files_in(paths: Sequence[Path]) -> list[Path]:
    """Return the files among ``paths`` and below the folders among them; links count as files."""
    files: list[Path] = []
    for path in paths:
        if path.is_symlink() or not path.is_dir():
            files += [path] if path.is_symlink() or path.exists() else []
        else:
            files += files_in(sorted(path.iterdir()))
    return files


def move_aside(existing: ExistingWork, disk: Disk) -> Path | None:
    """Move earlier files into ``existing.previous``; returns the folder, None for no files.

    Of our own work the latest one is kept. A folder that took foreign files is never removed:
    they go to ``previous`` with a number.

    Raises:
        OutputError: the disk is full or unwritable.
    """
    paths = [*existing.foreign_files, *existing.own_files]
    previous = existing.previous
    # After a kill half way the folder has its first name, and the next --force continues with it.
    moving = _moving_folder(existing)
    if not paths and not moving.exists():
        return None
    if existing.foreign_files:
        number = 1
        while (folder := previous.with_name(f"{previous.name}.{number}")).exists():
            number += 1
        disk.make_folder(folder)
        for path in paths:
            disk.move(path, folder / path.name)
        return folder
    disk.make_folder(moving)
    for path in paths:
        disk.remove_tree(moving / path.name)
        disk.move(path, moving / path.name)
    disk.remove_tree(previous)
    disk.move(moving, previous)
    return previous


def _moving_folder(existing: ExistingWork) -> Path:
    return existing.previous.with_name(f"{existing.previous.name}.moving")


def save_identity(path: Path, identity: WorkIdentity, disk: Disk) -> None:
    """Record at ``path`` which work is about to write its files, before the first of them.

    While the record is there, they are proved to be those of the work.

    Raises:
        OutputError: it cannot be written.
    """
    document = stamped("work", label=identity.label, settings=dict(identity.settings))
    disk.save(path, sealed(document))


def read_identity(path: Path) -> WorkIdentity | None:
    """Return what :func:`save_identity` recorded; None where there is no readable record.

    Raises:
        ResumeRefusedError: another version of the program wrote it (exit 3).
    """
    try:
        document = upgraded("work", unsealed(path.read_bytes()), path)
        return WorkIdentity(str(document["label"]), dict(document["settings"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _short(value: Json) -> str:
    """A value for a message; of a digest only the beginning."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) == 64:
        return f"sha256 {text[:12]}..."
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
