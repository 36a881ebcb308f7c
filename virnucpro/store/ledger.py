"""The ledger of a run: which tasks are proved to be finished, and why the others are not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from virnucpro.contracts import OutputFile, Task, TaskFigures, TaskResult
from virnucpro.layout import Layout
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.receipts import (
    Receipt,
    UnusableReceiptError,
    fingerprint,
    read_receipt,
    receipt_bytes,
)


@dataclass(frozen=True)
class Verdict:
    """Whether a task must be carried out, and why, in words for people."""

    stale: bool
    reason: str


class Ledger:
    """The receipts of one run.

    Digests form a chain from receipt to receipt: an input that an earlier stage wrote is known by
    its receipt and not hashed again. ``digests`` begins with that of the input file.
    """

    def __init__(self, layout: Layout, disk: Disk, digests: Mapping[Path, str]) -> None:
        """``digests``: SHA-256 (hex) of files that no stage writes, by path."""
        self._layout = layout
        self._disk = disk
        self._digests = dict(digests)
        self._receipts: dict[Path, Receipt] = {}
        self._removed = read_removed(layout)

    @property
    def has_removed_outputs(self) -> bool:
        """Whether intermediate files of a finished run were removed and so count as present."""
        return bool(self._removed)

    def forget_removed(self) -> None:
        """Treat removed files as missing from now on, in this run and in later ones."""
        self._disk.remove(self._layout.removed_list)
        self._removed = frozenset()

    def check(self, task: Task) -> Verdict:
        """Compare a task with its receipt and with the files on the disk.

        Raises:
            ResumeRefusedError: the receipt is of a newer version of the program.
        """
        try:
            receipt = _read(self._layout, task.receipt, self._removed, task.figures)
            digest = fingerprint(task, [self._digest(p) for p in task.inputs])
        except UnusableReceiptError as error:
            return Verdict(True, str(error))
        except FileNotFoundError as error:
            return Verdict(True, f"{Path(error.filename).name} is missing")
        if receipt.fingerprint != digest:
            return Verdict(True, "made from other inputs or settings")
        if task.outputs and {o.path for o in receipt.outputs} != set(task.outputs):
            return Verdict(True, "receipt names other files")
        for output in receipt.outputs:
            if problem := _problem(output, self._removed):
                return Verdict(True, problem)
        self._remember(task, receipt)
        if receipt.failed:
            return Verdict(True, f"{len(receipt.failed)} sequences failed last time")
        return Verdict(False, "proved by its receipt")

    def discard(self, task: Task) -> None:
        """Remove a stale receipt, before anything of the task is written again."""
        self._disk.remove(task.receipt)
        self._disk.remove(self._layout.archived(task.receipt))

    def commit(self, result: TaskResult, origin: str = "computed") -> Receipt:
        """Write the receipt of a finished task: from here on it counts.

        The receipt of a span need not outlive a power cut, and neither does its part file
        (``Disk.create``): a torn file is found when it is checked, and eight GPUs finish a hundred
        spans per second.

        Raises:
            OutputError: the receipt cannot be written.
        """
        task = result.task
        digest = fingerprint(task, [self._digest(p) for p in task.inputs])
        content = receipt_bytes(result, digest, self._layout.root, origin)
        self._disk.save(task.receipt, content, durable=task.span is None)
        receipt = Receipt(
            task.stage, digest, result.outputs, result.figures, origin, result.seconds
        )
        self._remember(task, receipt)
        return receipt

    def remove(self, receipts: Iterable[tuple[Path, Receipt]], keep: frozenset[Path]) -> None:
        """Delete outputs that a finished run no longer needs; their receipts stay as proof.

        The list of removed files is written first, so that a kill half way leaves a valid run.
        """
        removals = [
            (path, [o.path for o in receipt.outputs if o.path not in keep])
            for path, receipt in receipts
        ]
        removed = {p for path, outputs in removals for p in (path, *outputs) if outputs}
        names = sorted(p.relative_to(self._layout.root).as_posix() for p in removed)
        self._disk.save(self._layout.removed_list, json.dumps(names, indent=0).encode())
        self._removed = frozenset(removed)
        for path, outputs in removals:
            if outputs and path.parent != self._layout.state and path.exists():
                self._disk.save(self._layout.archived(path), path.read_bytes())
                self._disk.remove(path)
            for output in outputs:
                self._disk.remove(output)

    def _remember(self, task: Task, receipt: Receipt) -> None:
        self._receipts[task.receipt] = receipt
        self._digests.update({output.path: output.sha256 for output in receipt.outputs})

    def _digest(self, path: Path) -> str:
        if path not in self._digests:
            self._digests[path] = sha256_of(path)
        return self._digests[path]

    # --- what stages and reports ask

    def proved_result(self, task: Task) -> TaskResult:
        """Return the result of a task that its receipt proved, as if it had just been computed."""
        receipt = self._receipts[task.receipt]
        return TaskResult(task, receipt.outputs, receipt.figures, receipt.seconds)

    def outputs(self, stage: str) -> tuple[OutputFile, ...]:
        """Return the outputs of a finished whole-file stage."""
        return self._receipts[self._layout.receipt(stage)].outputs

    def figures(self, receipt: Path) -> TaskFigures:
        """Return the figures that a finished task left in its receipt."""
        return self._receipts[receipt].figures

    def receipts(self) -> list[tuple[Path, Receipt]]:
        """Return the receipts that were proved or written in this run, with their paths."""
        return list(self._receipts.items())


def read_removed(layout: Layout) -> frozenset[Path]:
    """Return the files that a finished run removed; their receipts stand for them."""
    try:
        names = json.loads(layout.removed_list.read_bytes())
        return frozenset(layout.root / str(name) for name in names)
    except (OSError, ValueError, TypeError):
        return frozenset()


def receipt_or_problem(layout: Layout, path: Path, removed: frozenset[Path]) -> Receipt | str:
    """Return the receipt at ``path`` if its files exist in their sizes, else what is wrong.

    Contents are not read: this is for ``status``, not for deciding what is computed again.

    Raises:
        ResumeRefusedError: the receipt is of a newer version of the program.
    """
    try:
        receipt = _read(layout, path, removed)
    except UnusableReceiptError as error:
        return str(error)
    problems = (_problem(output, removed, contents=False) for output in receipt.outputs)
    return next((problem for problem in problems if problem), receipt)


def _read(
    layout: Layout,
    path: Path,
    removed: frozenset[Path],
    figures: type[TaskFigures] = TaskFigures,
) -> Receipt:
    """Return the receipt at ``path``, or from the archive where the end of a run put it."""
    archived = path in removed and not path.exists()
    return read_receipt(layout.archived(path) if archived else path, layout.root, figures)


def _problem(output: OutputFile, removed: frozenset[Path], *, contents: bool = True) -> str | None:
    name = output.path.name
    if not output.path.is_file():
        return None if output.path in removed else f"{name} is missing"
    if output.path.stat().st_size != output.bytes:
        return f"{name} has another size than its receipt says"
    if contents and sha256_of(output.path) != output.sha256:
        return f"{name} has other content than its receipt says"
    return None
