"""One input on its way through all stages: what every part of this folder works on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from virnucpro.contracts import Json, Stage
from virnucpro.layout import Layout
from virnucpro.stages.splitting import copies_of, split_files
from virnucpro.store.disk import Disk
from virnucpro.store.hashed import HashedFile
from virnucpro.store.ledger import FileFailure, Ledger
from virnucpro.store.work import RunState


@dataclass(eq=False)
class Run:
    """One input on its way through all stages, and what of it was done so far.

    Attributes:
        stages: all stages, in order.
        state: what the results depend on, and the batch budgets that are known.
        inputs: the files that are read and that no stage writes, as they were hashed.
        keeps_features: whether they stay when they are scored.
        host_wait: seconds per stage, summed over workers, in which a device waited for tokens.
        computed: tasks carried out per stage.
        workers: one row per worker and stage, for the record of the run.
        bytes_per_frame: what the features of a frame take on the disk.
        embedding: the positions of the stages of the workers, which follow each other.
    """

    layout: Layout
    disk: Disk
    stages: Sequence[Stage]
    state: RunState
    inputs: Sequence[HashedFile] = ()
    keeps_features: bool = True
    bytes_per_frame: int = 0
    ledger: Ledger = field(init=False)
    embedding: range = field(init=False)
    seconds: defaultdict[str, float] = field(init=False, default_factory=lambda: defaultdict(float))
    host_wait: defaultdict[str, float] = field(
        init=False, default_factory=lambda: defaultdict(float)
    )
    computed: Counter[str] = field(init=False, default_factory=Counter)
    workers: list[dict[str, Json]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Read the receipts that are there."""
        self.ledger = Ledger(self.layout, self.disk, self.inputs)
        positions = [n for n, stage in enumerate(self.stages) if stage.runs_on == "worker"]
        self.embedding = range(positions[0], positions[-1] + 1) if positions else range(0)

    @property
    def failures(self) -> list[FileFailure]:
        """All sequences without a result, now and from earlier starts.

        Frames that are the same as a failed one stand behind it.
        """
        failures = [each for receipt in self.ledger.receipts.values() for each in receipt.failures]
        if not failures or not self.layout.copies_table.exists():
            return failures
        failed = {name for failure in failures for name in failure.ids}
        copies = copies_of(failed, self.layout.frames["nucleotide"], self.layout.copies_table)
        return [
            replace(f, ids=tuple(each for name in f.ids for each in (name, *copies.get(name, ()))))
            for f in failures
        ]

    @property
    def frames(self) -> list[int]:
        """The number of frames of each split file."""
        return [file.rows for file in split_files(self.ledger, self.layout, "nucleotide")]


def sweep(run: Run) -> None:
    """Remove temporary files of earlier, killed processes."""
    layout = run.layout
    run.disk.sweep(layout.root, {path.name for path in layout.top_files()})
    for folder in (layout.home, layout.state, layout.merged_folder, *layout.folders.values()):
        run.disk.sweep(folder)


def tidy_up(run: Run) -> None:
    """Remove what a run without failures does not need any more; its receipts stay as proof."""
    intermediate = {stage.name for stage in run.stages if stage.intermediate}
    # The results are made from these tables, and again with other thresholds.
    kept = frozenset({run.layout.records_table, run.layout.frames_table})
    receipts = [(path, r) for path, r in run.ledger.receipts.items() if r.stage in intermediate]
    run.ledger.remove(receipts, kept)
    for folder in run.layout.folders.values():
        run.disk.remove_folder(folder)
