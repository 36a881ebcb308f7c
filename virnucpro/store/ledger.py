"""Receipts, which prove what a task produced and from what, and the ledger of a run.

A receipt is the commit point. An output without one does not exist for the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from virnucpro.contracts import FailedSequences, Json, OutputFile, Task, TaskFigures, TaskResult
from virnucpro.errors import OutputError
from virnucpro.formatting import counted
from virnucpro.layout import Layout
from virnucpro.store.disk import AGAIN, Disk
from virnucpro.store.documents import digest, in_schema, sealed, stamped, unsealed
from virnucpro.store.hashed import HashedFile, changed_input_error, hashed, stamp_of

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


def fingerprint(task: Task, input_digests: list[str]) -> str:
    """Return the SHA-256 (hex) of everything that decides the result of ``task``.

    That is the stage and its version, the parameters and the contents of the inputs, but not paths,
    times or hardware.
    """
    decides = {"version": task.version, "params": dict(task.params), "inputs": input_digests}
    return digest({"stage": task.stage, **decides})


def receipt_document(receipt: Receipt, root: Path) -> dict[str, Json]:
    """Return what the file of a receipt holds, but for its digest."""

    def inside(path: Path) -> str:
        return path.relative_to(root).as_posix()

    return stamped("receipt", **msgspec.to_builtins(receipt, enc_hook=inside))


class Ledger:
    """The receipts of one run; nothing is written before a method does it.

    Digests form a chain from receipt to receipt: an input that an earlier stage wrote is known by
    its receipt, and hashed again only where its stamp is another one. It begins with the
    ``inputs`` of the run, as they were hashed.

    Attributes:
        receipts: the receipts that this start has proved or written.
    """

    def __init__(self, layout: Layout, disk: Disk, inputs: Sequence[HashedFile] = ()) -> None:
        self._layout = layout
        self._disk = disk
        self._inputs = {file.path: file for file in inputs}
        self._digests = {file.path: file.sha256 for file in inputs}
        self._files: dict[Path, HashedFile] = {}
        self._outputs: dict[Path, OutputFile] = {}
        self.receipts: dict[Path, Receipt] = {}

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

        Returns why it must be carried out; an empty text where it is proved to be finished.

        Raises:
            ResumeRefusedError: the receipt is of another version of the program.
        """
        try:
            receipt = self.read(task.receipt, task.figures)
            same_inputs = receipt.fingerprint == self.fingerprint(task)
        except ValueError as error:
            return str(error)
        except FileNotFoundError as error:
            return f"{Path(error.filename).name} is missing"
        if not same_inputs:
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
        self._digests.update({output.path: output.sha256 for output in receipt.outputs})
        self._outputs.update({output.path: output for output in receipt.outputs})

    def fingerprint(self, task: Task) -> str:
        """Return the :func:`fingerprint` of a task, whose inputs must exist.

        Called before they are used, so that :meth:`accept` notices where one was changed since.
        """
        for path in task.inputs:
            if path not in self._digests:
                self._files[path] = hashed(path)
                self._digests[path] = self._files[path].sha256
        return fingerprint(task, [self._digests[path] for path in task.inputs])

    def accept(self, result: TaskResult, *, durable: bool = True) -> None:
        """Count a finished task, and write its receipt.

        Raises:
            InputError: an input of the run was changed since; what was made of it is removed.
            OutputError: another input of the task was.
        """
        task, outputs, seconds = result.task, result.outputs, round(result.seconds, 3)
        given = [self._inputs[path] for path in task.inputs if path in self._inputs]
        if changed := [file for file in given if file.changed]:
            for output in outputs:
                self._disk.remove(output.path)
            raise changed_input_error(changed[0].path)
        read = (*task.inputs, *task.reads)
        for file in [self._files[path] for path in read if path in self._files]:
            if file.changed:
                raise OutputError(
                    f"{file.path} was changed while the run used it: nothing was made from it; let "
                    f"no other program write there, then {AGAIN}"
                )
        for output in outputs:
            self._files[output.path] = HashedFile(output.path, output.sha256, stamp_of(output.path))
        decided_by = self.fingerprint(task)
        receipt = Receipt(task.stage, decided_by, outputs, result.figures, "computed", seconds)
        self._count(task.receipt, receipt)
        document = receipt_document(receipt, self._layout.root)
        self._disk.save(task.receipt, sealed(document), durable=durable)

    # --- what stages and reports ask

    def outputs(self, stage: str) -> tuple[OutputFile, ...]:
        """Return the outputs of a finished whole-file stage."""
        return self.receipts[self._layout.receipt(stage)].outputs

    def known(self, path: Path) -> OutputFile:
        """Return what a finished task wrote there."""
        return self._outputs[path]

    def rows(self, path: Path) -> int:
        """Return the number of records in a file that a task wrote; 0 where none is proved."""
        return self._outputs[path].rows if path in self._outputs else 0

    def figures(self, receipt: Path) -> TaskFigures:
        """Return the figures that a finished task left in its receipt; empty ones without it."""
        return self.receipts[receipt].figures if receipt in self.receipts else TaskFigures()


def has_receipts(layout: Layout) -> bool:
    """Return whether any task of the run was finished here; nothing is read."""
    folders = [layout.state, layout.merged_folder, *layout.folders.values()]
    return any(any(folder.glob("*.done")) for folder in folders)
