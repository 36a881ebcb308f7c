"""The ledger of a run: which tasks are proved to be finished, and why the others are not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from virnucpro.contracts import Json, OutputFile, Task, TaskFigures, TaskResult
from virnucpro.errors import OutputError
from virnucpro.layout import MOLECULES, Layout
from virnucpro.store.disk import AGAIN, Disk
from virnucpro.store.documents import read_document, sealed, stamped
from virnucpro.store.receipts import (
    Receipt,
    UnusableReceiptError,
    fingerprint,
    read_receipt,
    receipt_document,
    receipt_of,
    write_receipt,
)
from virnucpro.store.stamps import HashedFile, hashed, stamp_of


@dataclass(frozen=True)
class StoredReceipts:
    """What the file of receipts holds."""

    # Intermediate files of a finished run that are gone; their receipts stand for them.
    removed: frozenset[Path] = frozenset()
    # Receipts of stages with one task and of removed files, by name.
    documents: Mapping[Path, Json] = field(default_factory=dict)


class Ledger:
    """The receipts of one run.

    Digests form a chain from receipt to receipt: an input that an earlier stage wrote is known by
    its receipt, and hashed again only where its stamp is another one. It begins with the
    ``digests`` (SHA-256, hex) of files that no stage writes.
    """

    def __init__(self, layout: Layout, disk: Disk, digests: Mapping[Path, str]) -> None:
        self._layout = layout
        self._disk = disk
        self._digests = dict(digests)
        self._files: dict[Path, HashedFile] = {}
        self._receipts: dict[Path, Receipt] = {}
        self._stored = read_receipts(layout)

    @property
    def has_removed_outputs(self) -> bool:
        """Whether intermediate files of a finished run were removed and so count as present."""
        return bool(self._stored.removed)

    def forget_removed(self, files: Collection[Path] | None = None) -> None:
        """Treat removed files (None: all) as missing from now on, in this run and in later ones."""
        removed = self._stored.removed
        kept = frozenset[Path]() if files is None else removed.difference(files)
        if kept != removed:
            self.store((), kept)

    def check(self, task: Task) -> str:
        """Compare a task with its receipt and with the files on the disk.

        Returns why it must be carried out; an empty text where it is proved to be finished.

        Raises:
            ResumeRefusedError: the receipt is of a newer version of the program.
        """
        try:
            stored = self._stored.documents.get(task.receipt)  # a receipt stays true for ever
            receipt = read_receipt(task.receipt, self._layout.root, task.figures, stored)
            same_inputs = self.has_inputs_of(task, receipt)
        except UnusableReceiptError as error:
            return str(error)
        except FileNotFoundError as error:
            return f"{Path(error.filename).name} is missing"
        if not same_inputs:
            return "made from other inputs or settings"
        if task.outputs and {o.path for o in receipt.outputs} != set(task.outputs):
            return "receipt names other files"
        for output in receipt.outputs:
            path = output.path
            if problem := _problem(output, self._stored.removed):
                return problem
            if path.exists():
                self._files[path] = hashed(path)
                if self._files[path].sha256 != output.sha256:
                    return f"{path.name} has other content than its receipt says"
        self._remember(task.receipt, receipt)
        return f"{len(receipt.failed)} sequences failed last time" if receipt.failed else ""

    def has_inputs_of(self, task: Task, receipt: Receipt) -> bool:
        """Return whether ``receipt`` was written for the inputs of ``task``, which must exist."""
        return receipt.fingerprint == self._fingerprint(task)

    def load(self, stage: str, figures: type[TaskFigures]) -> None:
        """Take the receipt of a stage with one task for true, without a look at its files."""
        receipt = stage_receipt(self._layout, stage, figures)
        self._receipts[self._layout.receipt(stage)] = receipt

    def reopened(self, task: Task) -> Task:
        """Return a stale task as it is carried out, after its old receipt is removed."""
        self._disk.remove(task.receipt)
        return replace(task, fingerprint=self._fingerprint(task), root=self._layout.root)

    def _fingerprint(self, task: Task) -> str:
        for path in task.inputs:
            if path not in self._digests:
                self._files[path] = hashed(path)
                self._digests[path] = self._files[path].sha256
        return fingerprint(task, [self._digests[path] for path in task.inputs])

    def accept(self, result: TaskResult, *, durable: bool = True) -> None:
        """Count a finished task, and write its receipt, unless its session has done that.

        Raises:
            OutputError: an input was changed since it was hashed. The receipt is removed.
        """
        task = result.task
        for file in [self._files[path] for path in task.inputs if path in self._files]:
            if file.changed:
                self._disk.remove(task.receipt)
                raise OutputError(
                    f"{file.path} was changed while the run used it: nothing was made from it; let "
                    f"no other program write there, then {AGAIN}"
                )
        for output in result.outputs:
            stamp = stamp_of(output.path)
            self._files[output.path] = HashedFile(output.path, output.sha256, stamp)
        self._remember(task.receipt, receipt_of(result))
        if task.receipt == self._layout.receipt(task.stage):
            self.store([task.receipt], durable=durable)
        elif not task.receipt.exists():
            write_receipt(self._disk, result)

    def remove(self, receipts: Iterable[tuple[Path, Receipt]], keep: frozenset[Path]) -> None:
        """Delete outputs that are no longer needed, after their receipts are stored."""
        receipts = list(receipts)
        files = [
            path
            for name, receipt in receipts
            for path in (*(output.path for output in receipt.outputs), name)
            if path not in keep and path != self._layout.receipt(receipt.stage)
        ]
        self.store([name for name, _ in receipts], self._stored.removed.union(files))
        for path in files:
            self._disk.remove(path)
            self._files.pop(path, None)  # it is known by its receipt

    def store(
        self,
        names: Iterable[Path] = (),
        removed: frozenset[Path] | None = None,
        *,
        durable: bool = True,
    ) -> None:
        """Store the receipts of these ``names``, and which files are ``removed`` (None: as before).

        They are written twice: a run that would have to be computed anew must not depend on a
        single file. Only the first one is flushed to the disk.
        """
        root = self._layout.root
        removed = self._stored.removed if removed is None else removed
        documents = dict(self._stored.documents)
        documents |= {name: receipt_document(self._receipts[name], root) for name in names}
        content = sealed(
            stamped(
                "receipts",
                removed=sorted(path.relative_to(root).as_posix() for path in removed),
                receipts={name.relative_to(root).as_posix(): d for name, d in documents.items()},
            )
        )
        for path, flushed in zip(self._layout.receipt_files, (durable, False), strict=True):
            if not path.exists() or path.read_bytes() != content:
                self._disk.save(path, content, durable=flushed)
        self._stored = StoredReceipts(removed, documents)

    def _remember(self, name: Path, receipt: Receipt) -> None:
        self._receipts[name] = receipt
        self._digests.update({output.path: output.sha256 for output in receipt.outputs})

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


def has_receipts(layout: Layout) -> bool:
    """Return whether any task of the run was finished here; nothing is read."""
    folders = [layout.state, layout.merged_folder, *map(layout.folder, MOLECULES)]
    stored = any(path.exists() for path in layout.receipt_files)
    return stored or any(any(folder.glob("*.done")) for folder in folders)


def read_receipts(layout: Layout) -> StoredReceipts:
    """Return the stored receipts of a run, from the copy where the first file is unreadable."""
    for path in layout.receipt_files:
        try:
            document = read_document("receipts", path)
            return StoredReceipts(
                frozenset(layout.root / name for name in document["removed"]),
                {layout.root / name: entry for name, entry in document["receipts"].items()},
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
    return StoredReceipts()


def stage_receipt(layout: Layout, stage: str, figures: type[TaskFigures]) -> Receipt:
    """Return the receipt of a stage with one task; UnusableReceiptError where there is none."""
    name = layout.receipt(stage)
    return read_receipt(name, layout.root, figures, read_receipts(layout).documents.get(name))


def receipt_or_problem(layout: Layout, path: Path, stored: StoredReceipts) -> Receipt | str:
    """Return a receipt if its files exist in their sizes, else what is wrong; for ``status``."""
    try:
        receipt = read_receipt(path, layout.root, stored=stored.documents.get(path))
    except UnusableReceiptError as error:
        return str(error)
    problems = (_problem(output, stored.removed) for output in receipt.outputs)
    return next((problem for problem in problems if problem), receipt)


def _problem(output: OutputFile, removed: frozenset[Path]) -> str:
    """Return why an output cannot be what its receipt says, as far as its size tells."""
    name = output.path.name
    if not output.path.is_file():
        return "" if output.path in removed else f"{name} is missing"
    if output.path.stat().st_size != output.bytes:
        return f"{name} has another size than its receipt says"
    return ""
