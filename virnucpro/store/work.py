"""Whether earlier work is the same work, and what a command may do then.

Every command that writes results asks here before it writes anything. What happens then is a table
in ``docs/checkpoints.md``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import msgspec

from virnucpro.contracts import Json
from virnucpro.errors import ResumeRefusedError, UsageError
from virnucpro.events import Notice, Show
from virnucpro.layout import Layout, existing_paths
from virnucpro.store.disk import Disk
from virnucpro.store.documents import read_kept, sealed, stamped
from virnucpro.store.ledger import has_receipts
from virnucpro.tables import FAILURES

LONGEST_VALUE = 200  # letters of a setting in a message


@dataclass(frozen=True)
class WorkIdentity:
    """What the results of a piece of work depend on."""

    label: str  # the work in words, for messages: ``the run of /data/sample.fa``
    # Everything that decides the results, by a name for people: digests of inputs and models,
    # parameters. Neither paths nor hardware belong here.
    settings: Mapping[str, Json]


def check_same(wanted: WorkIdentity, earlier: WorkIdentity, folder: Path) -> None:
    """Raise ResumeRefusedError (exit 3) where the work in ``folder`` depended on something else."""
    changes = ""
    for name in dict.fromkeys([*wanted.settings, *earlier.settings]):
        # As JSON has them: what was read from a file compares equal to what was written.
        both = (earlier.settings, wanted.settings)
        was, now = (json.dumps(values.get(name), sort_keys=True) for values in both)
        if was != now:
            changes += f"  {name.replace('_', ' ')}: was {_short(was)}, is {_short(now)}\n"
    if changes:
        instead = f", not {wanted.label}" if wanted.label != earlier.label else ""
        raise ResumeRefusedError(
            f"{folder} holds {earlier.label}{instead}; the results would differ:\n"
            f"{changes}repeat the command with the earlier input and settings, choose another "
            f"output, or start over with --force, which removes the earlier results"
        )


def _short(text: str) -> str:
    """Return a JSON value for a message; of a digest only the beginning."""
    text = {"null": "not set", "true": "on", "false": "off"}.get(text, text.strip('"'))
    if len(text) == 64:
        return f"sha256 {text[:12]}..."
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def refuse_existing(paths: Iterable[Path]) -> None:
    """Raise UsageError (exit 64) where a path is there that is about to be written first.

    A link that leads nowhere is there, too.
    """
    if found := existing_paths(*paths):
        raise UsageError(
            f"{found[0]} is there already, and no earlier start of this command wrote it: move it, "
            f"choose another output, or use --force, which replaces it"
        )


def checked_again(label: str) -> str:
    """Return what users are told of earlier work that is finished."""
    return f"{label} is finished: its results are checked"


# --- the state of a run


def has_begun(layout: Layout) -> bool:
    """Return whether an earlier start of a run left its state, or finished a task."""
    return layout.state_file.exists() or has_receipts(layout)


def refuse_files_of_others(layout: Layout) -> None:
    """Raise UsageError where a run has not begun, and files with the names of its results exist."""
    if has_begun(layout):
        return
    refuse_existing(path for path in layout.owned() if path not in layout.files_in_state())
    with suppress(OSError, ValueError), layout.failed_table.open(encoding="utf-8") as table:
        if next(table, "") != FAILURES.header:  # else it is of other runs in this folder
            refuse_existing([layout.failed_table])


@dataclass(frozen=True)
class RunIdentity:
    """What the results of a run of ``predict`` depend on; neither paths nor hardware belong here.

    It has every field of :class:`virnucpro.settings.AnalysisSettings` but those that name models.
    Models, the classifier and the files of the input are known by their SHA-256 (hex).

    Attributes:
        sequences_per_file: the most; where it is None, files follow from the number of frames.
        exact_frames_per_file: of a run of version 1, else None.
        dedup: whether the same frame is embedded once.
    """

    input: str
    second_input: str | None
    interleaved: bool
    exact_frames_per_file: int | None
    classifier: str
    nucleotide_model: str
    protein_model: str | None
    chunk_length: int
    sequences_per_file: int | None
    truncation: int
    precision: str
    duplicate_ids: str
    dedup: bool

    @property
    def weights(self) -> list[str]:
        """The digests of the classifier and of each encoder."""
        encoders = [self.nucleotide_model, self.protein_model]
        return [self.classifier, *(digest for digest in encoders if digest is not None)]

    @property
    def inputs(self) -> list[str]:
        """The digests of the files of the input."""
        return [self.input] if self.second_input is None else [self.input, self.second_input]


@dataclass(frozen=True)
class RunState:
    """What an earlier start of a run has to tell a later one."""

    source: str  # the file of the input, for messages and ``status`` only
    # Everything that decides the results, by name: the fields of a RunIdentity, or those of another
    # command.
    decided_by: Mapping[str, Json]
    # Batch budgets that were measured, by encoder and kind of device. Batches decide the last bits
    # of an embedding: the same ones make the same bytes on the same device.
    budgets: Mapping[str, int] = field(default_factory=dict)
    mates: str = ""  # the file of the second mates, likewise; empty for single records

    @property
    def work(self) -> WorkIdentity:
        """What decides whether the run may go on."""
        return WorkIdentity(f"the run of {self.source}", self.decided_by)

    @property
    def identity(self) -> RunIdentity:
        """What the results of a run of ``predict`` depend on; ValueError for other commands."""
        return msgspec.convert(self.decided_by, RunIdentity)


@dataclass
class StageProgress:
    """How far a stage is; ``files`` and ``sequences`` are None until they are counted."""

    stage: str
    title: str
    embeds: bool
    files_done: int = 0
    files: int | None = None
    sequences_done: int = 0
    sequences: int | None = None
    seconds: float = 0.0  # that workers have spent on what this and earlier starts embedded


@dataclass(frozen=True)
class RunProgress:
    """How far a run is, for ``virnucpro status``: its stages, what failed, and whether it ended."""

    stages: list[StageProgress]
    failed: list[dict[str, Json]]
    is_finished: bool


def read_progress(layout: Layout) -> RunProgress | None:
    """Return how far a run is, as it has written it down; a damaged file counts as none."""
    return read_kept("progress", layout.progress, RunProgress)


def read_state(layout: Layout) -> RunState | None:
    """Return the state of an earlier run of the same STEM; a damaged one counts as none."""
    return read_kept("run state", layout.state_file, RunState)


def read_identity(layout: Layout) -> RunIdentity | None:
    """Return what an earlier run of ``predict`` depends on; None where there is none."""
    state = read_state(layout)
    with suppress(ValueError):  # it is of another command
        return None if state is None else state.identity
    return None


def write_state(layout: Layout, disk: Disk, state: RunState) -> None:
    """Record what the run depends on, before anything is computed, and whenever a budget is new."""
    disk.save(layout.state_file, sealed(stamped("run state", **asdict(state))))


def check_run(layout: Layout, disk: Disk, wanted: RunState, show: Show, *, force: bool) -> RunState:
    """Check whether a run may start or go on, and return its state, which is not written yet.

    ``force`` removes what the program wrote for an earlier run. The state has the batch budgets of
    an earlier start.

    Raises ResumeRefusedError (exit 3) where the earlier run depended on something else.
    """
    if force and layout.owned():
        start_over(layout, disk)
        show(Notice("info", "--force: starting over; the earlier results were removed"))
    earlier = read_state(layout)
    if has_receipts(layout):
        # Without a state, its receipts decide task by task what is done again.
        identity = earlier.work if earlier else wanted.work
        check_same(wanted.work, identity, layout.root)
        finished = layout.run_record.exists() and not layout.failed_fasta.exists()
        going_on = f"going on with {identity.label}"
        show(Notice("info", checked_again(identity.label) if finished else going_on))
    return replace(wanted, budgets=earlier.budgets if earlier else {})


def start_over(layout: Layout, disk: Disk) -> None:
    """Remove what the program wrote for a run, its state first."""
    files = layout.owned()
    with suppress(ResumeRefusedError):
        if earlier := read_identity(layout):  # its chunks may have had another length
            files.append(Layout(layout.root, layout.stem, earlier.chunk_length).chunked)
    for path in reversed(files):
        disk.remove(path)
    for folder in (*layout.folders.values(), layout.merged_folder):
        disk.remove_folder(folder)
