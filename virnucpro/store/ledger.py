"""Receipts, which prove what a task produced and from what, and the ledger of a run.

A receipt is the commit point. An output without one does not exist for the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from virnucpro.contracts import FailedSequences, Json, OutputFile, Task, TaskFigures, TaskResult
from virnucpro.errors import OutputError
from virnucpro.formatting import counted
from virnucpro.layout import Layout
from virnucpro.store.disk import AGAIN, Disk
from virnucpro.store.documents import digest, in_schema, read_kept, sealed, stamped, unsealed
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
        removed: intermediate files of a finished run that are gone and count as present: their
            receipts stand for them.
        forgone: the same of features that nothing needs, because they were scored.
    """

    def __init__(
        self, layout: Layout, disk: Disk | None = None, inputs: Sequence[HashedFile] = ()
    ) -> None:
        self._layout = layout
        self._disk = disk or Disk()
        self._inputs = {file.path: file for file in inputs}
        self._digests = {file.path: file.sha256 for file in inputs}
        self._files: dict[Path, HashedFile] = {}
        self.receipts: dict[Path, Receipt] = {}
        first, copy = layout.receipt_files
        # Receipts of stages with one task and of removed files, and the names of these files.
        kept = read_kept("receipts", first, dict[str, Json])
        kept = kept or read_kept("receipts", copy, dict[str, Json]) or {}
        self.removed = frozenset(layout.root / name for name in kept.get("removed", ()))
        self.forgone: set[Path] = set()
        self._stored = {
            layout.root / name: entry for name, entry in kept.get("receipts", {}).items()
        }

    def forget_removed(self) -> None:
        """Treat all removed files as missing from now on, in this run and in later ones."""
        self.removed = frozenset()
        self.store()

    def forgo(self, files: Iterable[Path]) -> None:
        """Count those of the files as present that are gone."""
        self.forgone.update(path for path in files if not path.exists())

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
            try:
                document = unsealed(name.read_bytes())
            except (OSError, ValueError):
                if name not in self._stored:
                    raise
                document = self._stored[name]
            document = in_schema("receipt", document, name)
            receipt = msgspec.convert(document, Receipt, dec_hook=inside)
            return replace(receipt, figures=msgspec.convert(document["figures"], figures))
        except (OSError, ValueError) as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            raise ValueError(UNFINISHED if missing else "no proof that it is finished") from error

    @property
    def _needless(self) -> Set[Path]:
        return self.removed | self.forgone if self.forgone else self.removed

    def problem(self, receipt: Receipt) -> str:
        """Return why an output cannot be what its receipt says, as far as its size tells."""
        for output in receipt.outputs:
            name = output.path.name
            if output.path in self._needless:  # whatever stands there now is not used
                continue
            if not output.path.is_file():
                return f"{name} is missing"
            if output.path.stat().st_size != output.bytes:
                return f"{name} has another size than it had"
        return ""

    def check(self, task: Task) -> str:
        """Compare a task with its receipt and with the files on the disk.

        Returns why it must be carried out; an empty text where it is proved to be finished.

        Raises:
            ResumeRefusedError: the receipt is of a newer version of the program.
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
        if problem := self.problem(receipt):
            return problem
        for output in (each for each in receipt.outputs if each.path not in self._needless):
            self._files[output.path] = found = hashed(output.path)
            if found.sha256 != output.sha256:
                return f"{output.path.name} has other content than it had"
        self.receipts[task.receipt] = receipt
        self._digests.update({output.path: output.sha256 for output in receipt.outputs})
        failed = receipt.figures.failed
        return f"{counted(len(failed), 'sequence')} failed last time" if failed else ""

    def reopen(self, task: Task) -> None:
        """Remove the receipt of a stale task, and hash its inputs before they are used."""
        self._disk.remove(task.receipt)
        self.fingerprint(task)

    def fingerprint(self, task: Task) -> str:
        """Return the :func:`fingerprint` of a task, whose inputs must exist."""
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
            stamp = stamp_of(output.path)
            self._files[output.path] = HashedFile(output.path, output.sha256, stamp)
            self._digests[output.path] = output.sha256
        decided_by = self.fingerprint(task)
        receipt = Receipt(task.stage, decided_by, outputs, result.figures, "computed", seconds)
        self.receipts[task.receipt] = receipt
        if task.receipt == self._layout.receipt(task.stage):
            self.store([task.receipt], durable=durable)
        else:
            document = receipt_document(receipt, self._layout.root)
            self._disk.save(task.receipt, sealed(document), durable=durable)

    def remove(
        self, receipts: Iterable[tuple[Path, Receipt]], keep: frozenset[Path] = frozenset()
    ) -> None:
        """Delete outputs that are no longer needed, after their receipts are stored."""
        receipts = list(receipts)
        files = [
            path
            for name, receipt in receipts
            for path in (*(output.path for output in receipt.outputs), name)
            if path not in keep and path != self._layout.receipt(receipt.stage)
        ]
        self.removed = self.removed.union(files)
        self.store(name for name, _ in receipts)
        for path in sorted(self.removed):  # also what an earlier start was killed over
            self._disk.remove(path)
            self._files.pop(path, None)  # it is known by its receipt

    def store(self, names: Iterable[Path] = (), *, durable: bool = True) -> None:
        """Store the receipts of these ``names``, and which files are removed.

        They are written twice: a run that would have to be computed anew must not depend on a
        single file. Only the first one is flushed to the disk.
        """
        root = self._layout.root
        self._stored |= {name: receipt_document(self.receipts[name], root) for name in names}
        removed = sorted(path.relative_to(root).as_posix() for path in self.removed)
        receipts = {n.relative_to(root).as_posix(): d for n, d in self._stored.items()}
        content = sealed(stamped("receipts", removed=removed, receipts=receipts))
        for path, flushed in zip(self._layout.receipt_files, (durable, False), strict=True):
            if not path.exists() or path.read_bytes() != content:
                self._disk.save(path, content, durable=flushed)

    # --- what stages and reports ask

    def outputs(self, stage: str) -> tuple[OutputFile, ...]:
        """Return the outputs of a finished whole-file stage."""
        return self.receipts[self._layout.receipt(stage)].outputs

    def rows(self, stage: str, path: Path) -> int:
        """Return the number of records in an output of a finished whole-file stage."""
        return next(output.rows for output in self.outputs(stage) if output.path == path)

    def figures(self, receipt: Path) -> TaskFigures:
        """Return the figures that a finished task left in its receipt; empty ones without it."""
        return self.receipts[receipt].figures if receipt in self.receipts else TaskFigures()


def has_receipts(layout: Layout) -> bool:
    """Return whether any task of the run was finished here; nothing is read."""
    folders = [layout.state, layout.merged_folder, *layout.folders.values()]
    stored = any(path.exists() for path in layout.receipt_files)
    return stored or any(any(folder.glob("*.done")) for folder in folders)
