"""Receipts: small JSON files that prove what a task produced, and from what.

A receipt is the commit point. An output without one does not exist for the program.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from virnucpro.contracts import FailedSequences, Json, OutputFile, Task, TaskFigures, TaskResult
from virnucpro.store.disk import Disk
from virnucpro.store.documents import sealed, unsealed
from virnucpro.store.migrations import stamped, upgraded

_Value = TypeVar("_Value")


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
        return [
            FileFailure(f.error, f.message, f.ids, self.stage, self.outputs[0].path.name)
            for f in self.figures.failures
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

    Raises:
        OutputError: it cannot be written.
    """
    if not result.task.fingerprint:
        return
    content = sealed(receipt_document(receipt_of(result, origin), result.task.root))
    disk.save(result.task.receipt, content)


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
        return Receipt(
            stage=str(document["stage"]),
            fingerprint=str(document["fingerprint"]),
            outputs=tuple(
                OutputFile(
                    _inside(root, o["file"]), int(o["bytes"]), str(o["sha256"]), int(o["rows"])
                )
                for o in document["outputs"]
            ),
            figures=_parse(figures, document["figures"]),
            origin=str(document["origin"]),
            seconds=float(document["seconds"]),
        )
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise UnusableReceiptError("receipt unreadable") from error


def _inside(root: Path, name: str) -> Path:
    """Return ``name`` below ``root``; a receipt must not name a file elsewhere."""
    relative = Path(name)
    if relative.is_absolute() or ".." in relative.parts:
        raise ValueError(name)
    return root / relative


def _parse(kind: type[_Value], value: Json) -> _Value:
    """Return ``value``, as it is read from JSON or written to it, as a ``kind`` of figures.

    Raises:
        TypeError: it is not one.
        KeyError: a field of a dataclass is missing.
    """
    parsed: Any
    arguments = get_args(kind)
    if is_dataclass(kind) and isinstance(value, dict):
        kinds = get_type_hints(kind)
        parsed = kind(**{f.name: _parse(kinds[f.name], value[f.name]) for f in fields(kind)})
    elif get_origin(kind) is tuple and isinstance(value, list | tuple):
        parsed = tuple(_parse(arguments[0], item) for item in value)
    elif get_origin(kind) is Mapping and isinstance(value, dict):
        parsed = {str(name): _parse(arguments[1], item) for name, item in value.items()}
    elif kind is float and type(value) is int:
        parsed = float(value)
    elif type(value) is kind:
        parsed = value
    else:
        raise TypeError(f"{value!r} is not a {kind}")
    return parsed  # type: ignore[no-any-return]
