"""Receipts: small JSON files that prove what a task produced, and from what.

A receipt is the commit point. An output without one does not exist for the program.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from virnucpro.contracts import FailedSequences, Json, OutputFile, Task, TaskFigures, TaskResult
from virnucpro.store.disk import Disk
from virnucpro.store.documents import sealed, stamped, unsealed, upgraded


class UnusableReceiptError(ValueError):
    """The file is not a usable receipt; the task that it should prove is carried out again."""


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
    figures: TaskFigures = field(default_factory=TaskFigures)
    origin: str = "computed"
    seconds: float = 0.0

    @property
    def failed(self) -> tuple[str, ...]:
        """Ids of sequences that could not be embedded."""
        return failed_ids(self.figures)

    @property
    def failures(self) -> list[FileFailure]:
        """What failed, by file."""
        file = self.outputs[0].path.name if self.figures.failures else ""
        return [
            FileFailure(f.error, f.message, f.ids, self.stage, file) for f in self.figures.failures
        ]


def failed_ids(figures: TaskFigures) -> tuple[str, ...]:
    """Return the ids of all sequences that a finished task has no result for."""
    return tuple(name for failure in figures.failures for name in failure.ids)


def fingerprint(task: Task, input_digests: list[str]) -> str:
    """Return the SHA-256 (hex) of everything that decides the result of ``task``.

    That is the stage and its version, the parameters and the contents of the inputs, but not paths,
    times or hardware.
    """
    canonical = json.dumps(
        {
            "stage": task.stage,
            "version": task.version,
            "params": dict(task.params),
            "inputs": input_digests,
            "span": None,  # of versions that had tasks for parts of files
        },
        sort_keys=True,
        separators=(",", ":"),
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


def write_receipt(disk: Disk, result: TaskResult, origin: str = "computed") -> None:
    """Write the receipt of a finished task, whose files are safe: from here on it counts.

    A task that no ledger has handed out has no fingerprint, and gets no receipt.
    """
    if result.task.fingerprint:
        document = receipt_document(receipt_of(result, origin), result.task.root)
        disk.save(result.task.receipt, sealed(document))


def receipt_of(result: TaskResult, origin: str = "computed") -> Receipt:
    """Return what the receipt of a finished task says."""
    task = result.task
    return Receipt(
        task.stage, task.fingerprint, result.outputs, result.figures, origin, result.seconds
    )


def receipt_document(receipt: Receipt, root: Path) -> dict[str, Json]:
    """Return what the file of a receipt holds, but for its digest."""
    return stamped(
        "receipt",
        stage=receipt.stage,
        fingerprint=receipt.fingerprint,
        origin=receipt.origin,
        seconds=round(receipt.seconds, 3),
        outputs=[
            {
                "file": output.path.relative_to(root).as_posix(),
                "bytes": output.bytes,
                "sha256": output.sha256,
                "rows": output.rows,
            }
            for output in receipt.outputs
        ],
        figures=asdict(receipt.figures),
    )


def read_receipt(
    path: Path, root: Path, figures: type[TaskFigures] = TaskFigures, stored: Json = None
) -> Receipt:
    """Read a receipt whose figures are of the class ``figures``.

    ``stored`` is the document that stands for a file that is missing or damaged.

    Raises:
        UnusableReceiptError: missing, empty, changed since it was written, or not a receipt.
        ResumeRefusedError: written by another version of the program (exit 3).
    """
    try:
        document = unsealed(path.read_bytes())
    except (OSError, ValueError) as error:
        if stored is None:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            raise UnusableReceiptError("no receipt" if missing else "receipt unreadable") from error
        document = stored
    try:
        document = upgraded("receipt", document, path)
        names = [Path(o["file"]) for o in document["outputs"]]
        if any(name.is_absolute() or ".." in name.parts for name in names):
            raise ValueError("it names a file outside of the output directory")
        return Receipt(
            stage=str(document["stage"]),
            fingerprint=str(document["fingerprint"]),
            outputs=tuple(
                OutputFile(root / o["file"], int(o["bytes"]), str(o["sha256"]), int(o["rows"]))
                for o in document["outputs"]
            ),
            figures=msgspec.convert(document["figures"], figures),
            origin=str(document["origin"]),
            seconds=float(document["seconds"]),
        )
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise UnusableReceiptError("receipt unreadable") from error
