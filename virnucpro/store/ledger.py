"""The ledger of a run: which tasks are proved to be finished, and why the others are not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from virnucpro.contracts import Json, OutputFile, Task, TaskFigures, TaskResult
from virnucpro.errors import OutputError
from virnucpro.layout import Layout
from virnucpro.store.disk import Disk
from virnucpro.store.documents import sealed, unsealed
from virnucpro.store.migrations import current_schema, upgraded
from virnucpro.store.receipts import (
    Receipt,
    UnusableReceiptError,
    fingerprint,
    parsed_receipt,
    read_receipt,
    receipt_document,
    receipt_of,
    write_receipt,
)
from virnucpro.store.stamps import HashedFile, hashed, stamp_of
from virnucpro.version import __version__


@dataclass(frozen=True)
class Verdict:
    """Whether a task must be carried out, and why, in words for people."""

    stale: bool
    reason: str


@dataclass(frozen=True)
class Archive:
    """What a finished run removed.

    Attributes:
        removed: the files that are gone; their receipts stand for them.
        receipts: the documents of all receipts of the run, by the paths that they had.
    """

    removed: frozenset[Path] = frozenset()
    receipts: Mapping[Path, Json] = field(default_factory=dict)


class Ledger:
    """The receipts of one run.

    Digests form a chain from receipt to receipt: an input that an earlier stage wrote is known by
    its receipt, and hashed again only where its stamp is another one. ``digests`` begins with that
    of the input file.
    """

    def __init__(self, layout: Layout, disk: Disk, digests: Mapping[Path, str]) -> None:
        """``digests``: SHA-256 (hex) of files that no stage writes, by path."""
        self._layout = layout
        self._disk = disk
        self._digests = dict(digests)
        self._files: dict[Path, HashedFile] = {}
        self._receipts: dict[Path, Receipt] = {}
        self._archive = read_archive(layout)

    @property
    def has_removed_outputs(self) -> bool:
        """Whether intermediate files of a finished run were removed and so count as present."""
        return bool(self._archive.removed)

    def forget_removed(self, files: Collection[Path] | None = None) -> None:
        """Treat removed files as missing from now on, in this run and in later ones.

        None are all of them.
        """
        if files is None:
            for path in self._layout.archives:
                self._disk.remove(path)
            self._archive = Archive()
        elif not self._archive.removed.isdisjoint(files):
            self._write_archive(self._archive.removed.difference(files))

    def check(self, task: Task) -> Verdict:
        """Compare a task with its receipt and with the files on the disk.

        Raises:
            ResumeRefusedError: the receipt is of a newer version of the program.
        """
        try:
            receipt = _read(self._layout, task.receipt, self._archive, task.figures)
            same_inputs = self.has_inputs_of(task, receipt)
        except UnusableReceiptError as error:
            return Verdict(True, str(error))
        except FileNotFoundError as error:
            return Verdict(True, f"{Path(error.filename).name} is missing")
        if not same_inputs:
            return Verdict(True, "made from other inputs or settings")
        if task.outputs and {o.path for o in receipt.outputs} != set(task.outputs):
            return Verdict(True, "receipt names other files")
        for output in receipt.outputs:
            if problem := _problem(output, self._archive.removed) or self._changed_content(output):
                return Verdict(True, problem)
        self._remember(task, receipt)
        if receipt.failed:
            return Verdict(True, f"{len(receipt.failed)} sequences failed last time")
        return Verdict(False, "proved by its receipt")

    def has_inputs_of(self, task: Task, receipt: Receipt) -> bool:
        """Return whether the inputs of ``task`` are those that ``receipt`` was written for.

        Raises:
            FileNotFoundError: one of them is missing.
        """
        return receipt.fingerprint == fingerprint(task, [self._digest(p) for p in task.inputs])

    def reopened(self, task: Task) -> Task:
        """Return a stale task as it is carried out, after its old receipt is removed.

        Raises:
            FileNotFoundError: one of its inputs is missing.
        """
        self._disk.remove(task.receipt)
        return self.identified(task)

    def identified(self, task: Task) -> Task:
        """Return a task with what its receipt says of it.

        Raises:
            FileNotFoundError: one of its inputs is missing.
        """
        digest = fingerprint(task, [self._digest(path) for path in task.inputs])
        return replace(task, fingerprint=digest, root=self._layout.root)

    def accept(self, result: TaskResult, origin: str = "computed") -> None:
        """Count a finished task. Its receipt is written here, unless its session has done that.

        Raises:
            OutputError: an input was changed since it was hashed. The receipt is removed.
        """
        task = result.task
        for file in [self._files[path] for path in task.inputs if path in self._files]:
            if file.changed:
                self._disk.remove(task.receipt)
                raise OutputError(
                    f"{file.path} was changed while the run used it: nothing was made from it; let "
                    f"no other program write there, then {self._disk.again}"
                )
        for output in result.outputs:
            stamp = stamp_of(output.path)
            self._files[output.path] = HashedFile(output.path, output.sha256, stamp)
        if not task.receipt.exists():
            write_receipt(self._disk, result, origin)
        self._remember(task, receipt_of(result, origin))

    def adopt(self, result: TaskResult) -> None:
        """Write the receipt of a task whose outputs an earlier version of the program left.

        Raises:
            OutputError: it cannot be written.
        """
        self.accept(replace(result, task=self.reopened(result.task)), "legacy")

    def remove(self, receipts: Iterable[tuple[Path, Receipt]], keep: frozenset[Path]) -> None:
        """Delete outputs that a finished run no longer needs; the archive keeps their receipts.

        The archive is written first, so that a kill half way leaves a valid run. It is written
        twice: a run that would have to be computed anew must not depend on a single file.
        """
        files = [
            path
            for receipt_path, receipt in receipts
            for path in (*(output.path for output in receipt.outputs), receipt_path)
            if path not in keep and path != self._layout.receipt(receipt.stage)
        ]
        self._write_archive(self._archive.removed.union(files))
        for path in files:
            self._disk.remove(path)
            self._files.pop(path, None)  # it is known by its receipt

    def _write_archive(self, removed: Collection[Path]) -> None:
        """Write down which files are ``removed``, and all receipts that are known."""
        root = self._layout.root
        receipts = {
            path.relative_to(root).as_posix(): receipt_document(receipt, root)
            for path, receipt in self._receipts.items()
        }
        content = sealed(
            {
                "schema": current_schema("archive"),
                "producer": f"virnucpro {__version__}",
                "removed": sorted(path.relative_to(root).as_posix() for path in removed),
                "receipts": receipts,
            }
        )
        for path in self._layout.archives:
            if not path.exists() or path.read_bytes() != content:
                self._disk.save(path, content)
        self._archive = read_archive(self._layout)

    def _remember(self, task: Task, receipt: Receipt) -> None:
        self._receipts[task.receipt] = receipt
        self._digests.update({output.path: output.sha256 for output in receipt.outputs})

    def _digest(self, path: Path) -> str:
        if path not in self._digests:
            self._files[path] = hashed(path)
            self._digests[path] = self._files[path].sha256
        return self._digests[path]

    def _changed_content(self, output: OutputFile) -> str | None:
        """Return that an output, if it is not removed, has other content than it should have."""
        try:
            found = self._files[output.path] = hashed(output.path)
        except FileNotFoundError:
            return None
        if found.sha256 != output.sha256:
            return f"{output.path.name} has other content than its receipt says"
        return None

    # --- what stages and reports ask

    def outputs(self, stage: str) -> tuple[OutputFile, ...]:
        """Return the outputs of a finished whole-file stage."""
        return self._receipts[self._layout.receipt(stage)].outputs

    def figures(self, receipt: Path) -> TaskFigures:
        """Return the figures that a finished task left in its receipt; empty ones without it."""
        return self._receipts[receipt].figures if receipt in self._receipts else TaskFigures()

    def part(self, receipt: Path) -> OutputFile | None:
        """Return the file of a task that this start has proved or carried out; None without one."""
        return self._receipts[receipt].outputs[0] if receipt in self._receipts else None

    def receipts(self) -> list[tuple[Path, Receipt]]:
        """Return the receipts that were proved or written in this run."""
        return list(self._receipts.items())


def read_archive(layout: Layout) -> Archive:
    """Return what a finished run removed, from the first copy of the archive that is readable.

    Raises:
        ResumeRefusedError: a newer version of the program wrote it (exit 3).
    """
    for path in layout.archives:
        try:
            document = upgraded("archive", unsealed(path.read_bytes()), path)
            return Archive(
                frozenset(layout.root / name for name in document["removed"]),
                {layout.root / name: entry for name, entry in document["receipts"].items()},
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
    return Archive()


def receipt_or_problem(layout: Layout, path: Path, archive: Archive) -> Receipt | str:
    """Return the receipt at ``path`` if its files exist in their sizes, else what is wrong.

    Contents are not read: this is for ``status``, not for deciding what is computed again.

    Raises:
        ResumeRefusedError: the receipt is of a newer version of the program.
    """
    try:
        receipt = _read(layout, path, archive)
    except UnusableReceiptError as error:
        return str(error)
    problems = (_problem(output, archive.removed) for output in receipt.outputs)
    return next((problem for problem in problems if problem), receipt)


def _read(
    layout: Layout, path: Path, archive: Archive, figures: type[TaskFigures] = TaskFigures
) -> Receipt:
    """Return the receipt at ``path``, or from the archive where it is removed or damaged.

    A receipt stays true for ever: it says what came out of which inputs.
    """
    try:
        return read_receipt(path, layout.root, figures)
    except UnusableReceiptError:
        if path not in archive.receipts:
            raise
        return parsed_receipt(archive.receipts[path], path, layout.root, figures)


def _problem(output: OutputFile, removed: frozenset[Path]) -> str | None:
    """Return why an output cannot be what its receipt says, as far as its size tells."""
    name = output.path.name
    if not output.path.is_file():
        return None if output.path in removed else f"{name} is missing"
    if output.path.stat().st_size != output.bytes:
        return f"{name} has another size than its receipt says"
    return None
