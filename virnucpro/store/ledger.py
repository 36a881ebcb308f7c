"""Receipts, which prove what a task produced and from what, and the ledger of a run.

A receipt is the commit point. An output without one does not exist for the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from virnucpro.contracts import FailedSequences, Json, OutputFile, Task, TaskFigures, TaskResult
from virnucpro.errors import OutputError
from virnucpro.formatting import counted
from virnucpro.layout import Layout
from virnucpro.store.disk import AGAIN, Disk
from virnucpro.store.documents import digest, in_schema, sealed, stamped, unsealed
from virnucpro.store.hashed import HashedFile, changed_input_error, hashed, stamp_of

Figures = TypeVar("Figures", bound=TaskFigures)
UNFINISHED = "not finished"  # why a task without a receipt must be carried out


@dataclass(frozen=True)
class FileFailure(FailedSequences):
    """Sequences that are missing in one ``file`` of a ``stage``, and why."""

    stage: str
    file: str


@dataclass(frozen=True)
class Receipt:
    """What is known of a finished task. In the file, paths are relative to the output directory.

    ``origin`` is ``computed``, or ``legacy`` for a file taken over from an earlier version.
    """

    stage: str
    fingerprint: str
    outputs: tuple[OutputFile, ...]
    figures: TaskFigures
    origin: str
    seconds: float

    @property
    def failures(self) -> list[FileFailure]:
        """What failed, by file."""
        return [
            FileFailure(f.error, f.message, f.ids, self.stage, self.outputs[0].path.name)
            for f in self.figures.failures
        ]


def fingerprint(task: Task, input_digests: list[str], identity: str) -> str:
    """Return the SHA-256 (hex) of everything that decides the result of ``task``.

    That is the stage and its version, the contents of the inputs, the parameters, and the digest of
    the ``identity`` of the run, which is all that the whole run depends on; but not paths, times or
    hardware.
    """
    decides = {"version": task.version, "params": dict(task.params), "inputs": input_digests}
    return digest({"stage": task.stage, "identity": identity, **decides})


def save_receipt(
    disk: Disk, path: Path, receipt: Receipt, root: Path, *, durable: bool = True
) -> None:
    """Write a receipt of files in the output directory ``root``."""

    def inside(path: Path) -> str:
        return path.relative_to(root).as_posix()

    document = stamped("receipt", **msgspec.to_builtins(receipt, enc_hook=inside))
    disk.save(path, sealed(document), durable=durable)


class Ledger:
    """The receipts of one run; nothing is written before a method does it.

    Digests form a chain from receipt to receipt: an input that an earlier stage wrote is known by
    its receipt, and hashed again only where its stamp is another one. It begins with the
    ``inputs`` of the run, as they were hashed. The ``identity``, which is all that the run depends
    on, is part of every fingerprint: no stage can forget a setting.

    Attributes:
        receipts: the receipts that this start has proved or written.
        written: what they say of each file.
    """

    def __init__(
        self,
        layout: Layout,
        disk: Disk,
        inputs: Sequence[HashedFile] = (),
        identity: Mapping[str, Json] | None = None,
    ) -> None:
        self._layout = layout
        self._disk = disk
        self._identity = digest(identity or {})
        self._inputs = {file.path for file in inputs}
        self._files = {file.path: file for file in inputs}  # with the content that counts
        self.receipts: dict[Path, Receipt] = {}
        self.written: dict[Path, OutputFile] = {}

    def read(self, name: Path, figures: type[TaskFigures] = TaskFigures) -> Receipt:
        """Return a receipt with figures of a class, without a look at what it describes.

        Raises:
            ValueError: missing, empty, changed since it was written, or not a receipt; says which.
            ResumeRefusedError: written by another version of the program (exit 3).
        """

        def inside(kind: type, name: str) -> Path:
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise ValueError(f"{name} is outside of the output directory")
            return self._layout.root / name

        try:
            document = unsealed(name.read_bytes())
            document = in_schema("receipt", document, name)
            receipt = msgspec.convert(document, Receipt, dec_hook=inside)
            return replace(receipt, figures=msgspec.convert(document["figures"], figures))
        except (OSError, ValueError) as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            raise ValueError(UNFINISHED if missing else "no proof that it is finished") from error

    def is_proved(self, task: Task) -> bool:
        """Return whether a task is finished, and nothing of it failed."""
        return not self.reason(task)

    def reason(self, task: Task) -> str:
        """Compare a task with its receipt and with the files on the disk.

        Returns why it must be carried out; an empty text where it is proved to be finished. Its
        inputs count as they are now: :meth:`accept` notices where one is changed later.

        Raises:
            ResumeRefusedError: the receipt is of another version of the program.
        """
        try:
            decided_by = self.fingerprint(task)
            receipt = self.read(task.receipt, task.figures)
        except ValueError as error:
            return str(error)
        except FileNotFoundError as error:
            return f"{Path(error.filename).name} is missing"
        if receipt.fingerprint != decided_by:
            return "made from other inputs or settings"
        files = {output.path for output in receipt.outputs}
        others = [path for path in task.optional if path not in files and path.exists()]
        expected = {*task.outputs, *files.intersection(task.optional)}
        if task.outputs and (others or files != expected):
            return "other files belong to it"
        for output in receipt.outputs:
            if not output.path.is_file():
                return f"{output.path.name} is missing"
            self._files[output.path] = found = hashed(output.path)
            if found.sha256 != output.sha256:
                return f"{output.path.name} has other content than it had"
        self._count(task.receipt, receipt)
        failed = receipt.figures.failed
        return f"{counted(len(failed), 'sequence')} failed last time" if failed else ""

    def recall(self, task: Task) -> None:
        """Count a task whose outputs are gone because nothing needs them any more."""
        try:
            receipt = self.read(task.receipt, task.figures)
        except ValueError:  # its receipt is gone, too: what follows from it is proved
            receipt = Receipt(task.stage, "", (), task.figures(), "computed", 0.0)
        self.receipts[task.receipt] = receipt

    def _count(self, name: Path, receipt: Receipt) -> None:
        self.receipts[name] = receipt
        self.written.update({output.path: output for output in receipt.outputs})

    def fingerprint(self, task: Task) -> str:
        """Return the :func:`fingerprint` of a task, whose inputs must exist."""
        for path in task.inputs:
            if path not in self._files:
                self._files[path] = hashed(path)
        digests = [self._files[path].sha256 for path in task.inputs]
        return fingerprint(task, digests, self._identity)

    def accept(self, result: TaskResult, *, durable: bool = True) -> None:
        """Count a finished task, and write its receipt.

        Raises:
            InputError: an input of the run was changed since; what was made of it is removed.
            OutputError: another input of the task was.
        """
        task, outputs, seconds = result.task, result.outputs, round(result.seconds, 3)
        for path in (*task.inputs, *task.reads):
            if path not in self._files or not self._files[path].changed:
                continue
            if path in self._inputs:
                for output in outputs:
                    self._disk.remove(output.path)
                raise changed_input_error(path)
            raise OutputError(
                f"{path} was changed while the run used it: nothing was made from it; let no other "
                f"program write there, then {AGAIN}"
            )
        for output in outputs:
            self._files[output.path] = HashedFile(output.path, output.sha256, stamp_of(output.path))
        decided_by = self.fingerprint(task)
        receipt = Receipt(task.stage, decided_by, outputs, result.figures, "computed", seconds)
        self._count(task.receipt, receipt)
        save_receipt(self._disk, task.receipt, receipt, self._layout.root, durable=durable)

    # --- what stages and reports ask

    def outputs(self, stage: str) -> tuple[OutputFile, ...]:
        """Return the outputs of a finished whole-file stage."""
        return self.receipts[self._layout.receipt(stage)].outputs

    def rows(self, path: Path) -> int:
        """Return the number of records in a file that a task wrote; 0 where none is proved."""
        return self.written[path].rows if path in self.written else 0

    def figures(self, receipt: Path, kind: type[Figures]) -> Figures:
        """Return the figures that a finished task left in its receipt; empty ones without it."""
        figures = self.receipts[receipt].figures if receipt in self.receipts else kind()
        assert isinstance(figures, kind)
        return figures


def has_receipts(layout: Layout) -> bool:
    """Return whether any task of the run was finished here; nothing is read."""
    folders = [layout.state, layout.merged_folder, *layout.folders.values()]
    return any(any(folder.glob("*.done")) for folder in folders)
