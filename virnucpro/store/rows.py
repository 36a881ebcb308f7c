"""The embeddings of a span that is not finished, kept so that an interrupted run loses seconds.

A file of its own per span holds the rows of the batches that are finished. It proves itself: its
first line is JSON with the identity of the work, the batches and the SHA-256 of the rows behind it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import torch

from virnucpro.contracts import Json
from virnucpro.errors import RunInterruptedError
from virnucpro.store.disk import Disk
from virnucpro.store.documents import parse_json
from virnucpro.store.features import all_finite

# What a kill may cost. A GPU finishes a span before that, and nothing is written at all.
SAVE_SECONDS = 5.0


class FinishedRows:
    """The rows of the finished batches of a span. To be used in a ``with`` block.

    They are saved every few seconds and when the block is left because of a signal. After any other
    error the file is removed: the span is divided then, into other batches.
    """

    def __init__(
        self, path: Path, disk: Disk, width: int, identity: Callable[[], Json], seconds: float
    ) -> None:
        """``identity`` returns what decides the rows; it is asked only when it is needed."""
        self._path = path
        self._disk = disk
        self._width = width
        self._identity = identity
        self._seconds = seconds
        self._batches: dict[tuple[int, ...], torch.Tensor] = {}
        self._unsaved = False
        self._last_save = time.monotonic()
        self._exists = path.is_file()
        if self._exists:
            self._load()

    def _load(self) -> None:
        """Read the batches of an earlier run. A file that does not prove itself counts for none."""
        try:
            first, _, content = self._path.read_bytes().partition(b"\n")
            header = parse_json(first)
            batches = [tuple(map(int, batch)) for batch in header["batches"]]
            proved = header["identity"] == self._identity()
            proved &= header["sha256"] == _digest(batches, content)
            rows = np.frombuffer(content, np.float32).reshape(-1, self._width).copy()
        except (OSError, ValueError, TypeError, LookupError):
            return
        if proved and len(rows) == sum(map(len, batches)):
            parts = torch.split(torch.from_numpy(rows), [len(batch) for batch in batches])
            self._batches = dict(zip(batches, parts, strict=True))

    def rows(self, batch: Sequence[int]) -> torch.Tensor | None:
        """Return the rows of exactly this batch, ``[len(batch), width]``, if an earlier run has it.

        The same sequences in another batch may have other last bits.
        """
        return self._batches.get(tuple(batch))

    def add(self, batch: Sequence[int], rows: torch.Tensor) -> None:
        """Add a finished batch. ``rows`` must not change any more.

        Raises:
            OutputError: the rows cannot be saved.
        """
        if all_finite(rows):
            self._batches[tuple(batch)] = rows
            self._unsaved = True
        if time.monotonic() - self._last_save >= self._seconds:
            self._save()

    def _save(self) -> None:
        if self._unsaved:
            batches = list(self._batches)
            content = torch.cat(list(self._batches.values())).numpy().tobytes()
            header = {
                "identity": self._identity(),
                "batches": batches,
                "sha256": _digest(batches, content),
            }
            line = json.dumps(header).encode() + b"\n"
            self._disk.save(self._path, [line, content], durable=False)
            self._exists = True
        self._unsaved = False
        self._last_save = time.monotonic()

    def remove(self) -> None:
        """Remove the file: the span is written, or its rows are wrong."""
        if self._exists:
            self._disk.remove(self._path)
        self._exists = self._unsaved = False

    def __enter__(self) -> FinishedRows:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, RunInterruptedError):
            self._save()
        elif error is not None:
            self.remove()


def _digest(batches: Sequence[Sequence[int]], content: bytes) -> str:
    sha = hashlib.sha256(json.dumps([list(batch) for batch in batches]).encode())
    sha.update(content)
    return sha.hexdigest()
