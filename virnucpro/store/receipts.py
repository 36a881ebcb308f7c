"""Receipts: small JSON files that prove what a task produced, and from what.

A receipt is the commit point. An output without one does not exist for the program.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from virnucpro import __version__
from virnucpro.contracts import Json, OutputFile, Task, TaskResult
from virnucpro.store.migrations import current_schema, upgraded


class UnusableReceiptError(ValueError):
    """The file is no receipt of ours; the work it should prove is done again."""


@dataclass(frozen=True)
class Receipt:
    """What is known of a finished task. Paths of outputs are relative to the output directory.

    ``origin`` is ``computed``, or ``legacy`` for a file taken over from an earlier version.
    """

    stage: str
    fingerprint: str
    outputs: tuple[OutputFile, ...]
    facts: Mapping[str, Json] = field(default_factory=dict)
    origin: str = "computed"
    seconds: float = 0.0

    @property
    def failed(self) -> tuple[str, ...]:
        """Ids of sequences that could not be embedded."""
        return failed_ids(self.facts)


def failed_ids(facts: Mapping[str, Json]) -> tuple[str, ...]:
    """Ids in the ``failed`` fact of a receipt: rows with ``error``, ``message`` and ``ids``."""
    return tuple(name for row in facts.get("failed", ()) for name in row["ids"])


def fingerprint(task: Task, input_digests: list[str]) -> str:
    """SHA-256 (hex) of everything that decides the answer of ``task``.

    That is the stage and its version, the parameters, the contents of the inputs and the span of
    records; neither paths nor times nor hardware.
    """
    canonical = json.dumps(
        {
            "stage": task.stage,
            "version": task.version,
            "params": dict(task.params),
            "inputs": input_digests,
            "span": task.span,
        },
        sort_keys=True,
        separators=(",", ":"),
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


def write_receipt(done: TaskResult, mark: str, root: Path, origin: str) -> bytes:
    """The JSON text of a receipt, one output a line's worth of indentation."""
    document = {
        "schema": current_schema("receipt"),
        "producer": f"virnucpro {__version__}",
        "stage": done.task.stage,
        "fingerprint": mark,
        "origin": origin,
        "seconds": round(done.seconds, 3),
        "outputs": [
            {
                "file": output.path.relative_to(root).as_posix(),
                "bytes": output.bytes,
                "sha256": output.sha256,
                "rows": output.rows,
            }
            for output in done.outputs
        ],
        "facts": dict(done.facts),
    }
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def read_receipt(path: Path, root: Path) -> Receipt:
    """Parse a receipt.

    Raises:
        UnusableReceipt: missing, empty, truncated or not ours.
        ResumeRefused: written by a newer version of the program (exit 3).
    """
    try:
        document = upgraded("receipt", json.loads(path.read_bytes()), path)
        return Receipt(
            stage=str(document["stage"]),
            fingerprint=str(document["fingerprint"]),
            outputs=tuple(
                OutputFile(
                    _inside(root, o["file"]), int(o["bytes"]), str(o["sha256"]), int(o["rows"])
                )
                for o in document["outputs"]
            ),
            facts=dict(document["facts"]),
            origin=str(document["origin"]),
            seconds=float(document["seconds"]),
        )
    except FileNotFoundError:
        raise UnusableReceiptError("no receipt") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnusableReceiptError("receipt unreadable") from error


def _inside(root: Path, name: str) -> Path:
    """``name`` below ``root``; a receipt must not name a file elsewhere."""
    relative = Path(name)
    if relative.is_absolute() or ".." in relative.parts:
        raise ValueError(name)
    return root / relative
