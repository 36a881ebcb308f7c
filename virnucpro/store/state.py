"""The state of a run: what its results depend on, compared before anything is resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from virnucpro import __version__
from virnucpro.contracts import Json
from virnucpro.errors import ResumeRefusedError, UsageError
from virnucpro.layout import Layout
from virnucpro.store import legacy
from virnucpro.store.disk import Disk

SCHEMA = 1


@dataclass(frozen=True)
class RunState:
    """What an earlier start of a run has to tell a later one.

    Attributes:
        source: the input as given, for messages only.
        science: decides the results.
        budgets: batch budgets that were measured, by encoder and kind of device. Batches decide
            the last bits of an embedding: the same ones make the same bytes on the same device.
    """

    source: str
    analysis: Mapping[str, Json]
    budgets: Mapping[str, int] = field(default_factory=dict)


def refuse_links(layout: Layout) -> None:
    """Keep out of folders that somebody else may share or exchange.

    Raises:
        ResumeRefused: a symbolic link stands in place of the state folder (exit 3).
    """
    for path in (layout.checkpoints, layout.state):
        if path.is_symlink():
            raise ResumeRefusedError(
                f"{path} is a symbolic link; checkpoints are kept only in a folder of their own: "
                f"remove the link"
            )


def read_state(layout: Layout) -> RunState | None:
    """The state of an earlier run of the same STEM, or None.

    Raises:
        ResumeRefused: a newer version wrote it (exit 3).
    """
    try:
        document = json.loads(layout.run_state.read_bytes())
        if document["schema"] > SCHEMA:
            raise ResumeRefusedError(
                f"{layout.run_state} was written by a newer version ({document['producer']}); "
                f"upgrade virnucpro, or start over with --force"
            )
        budgets = {
            str(key): value
            for key, value in dict(document.get("budgets", {})).items()
            if isinstance(value, int) and value > 0
        }
        return RunState(str(document["source"]), dict(document["analysis"]), budgets)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # damaged: the receipts alone decide what is done again


def write_state(layout: Layout, disk: Disk, state: RunState) -> None:
    """Record what the run depends on, before anything is computed, and whenever a budget is new."""
    document = {
        "schema": SCHEMA,
        "producer": f"virnucpro {__version__}",
        "source": state.source,
        "analysis": dict(state.analysis),
        "budgets": dict(state.budgets),
    }
    disk.save(layout.run_state, (json.dumps(document, indent=1) + "\n").encode())


def admit(layout: Layout, disk: Disk, wanted: RunState, *, resume: bool, force: bool) -> str | None:
    """Decide whether the run may go on in this directory; moves old files aside under ``force``.

    Returns:
        A sentence for the user, or None.

    Raises:
        ResumeRefused: what is there was made from something else (exit 3).
        UsageError: results are there and neither ``resume`` nor ``force`` was given (exit 64).
    """
    refuse_links(layout)
    there = layout.owned()
    refusal: ResumeRefusedError | UsageError | None
    try:
        there = [] if _only_begun(layout) else there
        refusal = _refusal(layout, there, wanted, resume)
    except ResumeRefusedError as newer:  # a state of the future: --force starts over there, too
        refusal = newer
    if refusal is None:
        if resume and not there:
            return f"nothing to resume in {layout.root}: starting from the beginning"
        if there and read_state(layout) is None and legacy.found(layout):
            return legacy.survey(layout, disk)
        return None
    if not force:
        raise refusal
    _move_aside(layout, disk, [*there, layout.legacy_state] if legacy.found(layout) else there)
    return f"--force: starting over; what was there is now in {layout.previous}"


def _only_begun(layout: Layout) -> bool:
    """Whether an earlier run ended before its first stage, as on input that was refused."""
    begun = layout.owned() == [layout.state] and read_state(layout) is not None
    return begun and not any(layout.state.glob("*.done"))


def _refusal(
    layout: Layout, there: list[Path], wanted: RunState, resume: bool
) -> ResumeRefusedError | UsageError | None:
    if not there:
        return None
    earlier = read_state(layout)
    changed = _changes(earlier, wanted) if earlier else _legacy_changes(layout, wanted)
    if earlier and earlier.source != wanted.source and any(n == "input" for n, _, _ in changed):
        return ResumeRefusedError(
            f"{layout.root} holds a run of another input of the same name: {earlier.source}, not "
            f"{wanted.source}; choose another --output-dir, or start over with --force"
        )
    if not resume:
        return UsageError(
            f"{layout.root} already holds files of {layout.stem} ({there[0].name}, ...): go on "
            f"with --resume, or start over with --force"
        )
    if changed:
        rows = "\n".join(f"  {name}: was {was}, is {now}" for name, was, now in changed)
        return ResumeRefusedError(
            f"results would differ from those already in {layout.root}:\n{rows}\n"
            f"resume with the same input and settings, or start over with --force"
        )
    return None


def _changes(earlier: RunState, wanted: RunState) -> list[tuple[str, str, str]]:
    """(name, was, is) of everything that differs; long digests shortened."""
    names = [n for n in wanted.analysis if earlier.analysis.get(n) != wanted.analysis[n]]
    return [
        (name, _short(earlier.analysis.get(name)), _short(wanted.analysis[name])) for name in names
    ]


def _legacy_changes(layout: Layout, wanted: RunState) -> list[tuple[str, str, str]]:
    return legacy.differences(layout, wanted.analysis) if legacy.found(layout) else []


def _short(value: Json) -> str:
    text = str(value)
    return f"sha256 {text[:12]}..." if len(text) == 64 else text


def _move_aside(layout: Layout, disk: Disk, there: list[Path]) -> None:
    """Keep the latest earlier run, once, under ``STEM.previous``."""
    # A kill half way leaves the folder under its first name, and the next --force goes on with it.
    moving = layout.previous.with_suffix(".moving")
    disk.make_folder(moving)
    for path in there:
        disk.move(path, moving / path.name)
    disk.remove_tree(layout.previous)
    disk.move(moving, layout.previous)
