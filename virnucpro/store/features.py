"""Feature files: ids and embeddings in the ``.pt`` formats of version 1 and of now.

====================  ==========================================  =============================
file                  version 1                                   now (``schema`` 1)
====================  ==========================================  =============================
``_DNABERT_S.pt``     ``nucleotide``: ids; ``data``: dicts with    ``data``: one float32 tensor
                      ``label`` and ``mean_representation``       ``[n, width]``
``_ESM.pt``           ``proteins``: ids; ``data``: list of        the same
                      tensors ``[width]``
``_merged.pt``        ``ids``; ``data``: tensor ``[n, width]``    the same
====================  ==========================================  =============================
"""

from __future__ import annotations

import pickle
import struct
import threading
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

SCHEMA = 1
Kind = Literal["nucleotide", "protein", "merged", "scores"]
_ID_KEY: dict[Kind, str] = {
    "nucleotide": "nucleotide",
    "protein": "proteins",
    "merged": "ids",
    "scores": "ids",
}


# What torch.load raises on damaged files; the second line was found by fuzzing.
_UNREADABLE: tuple[type[Exception], ...]
_UNREADABLE = (OSError, RuntimeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile)
_UNREADABLE += (LookupError, AttributeError, TypeError, AssertionError, ValueError)
_UNREADABLE += (struct.error, OverflowError, MemoryError, Warning)


_READING = threading.Lock()


@contextmanager
def warnings_of_torch(action: Literal["error", "ignore"]) -> Iterator[None]:
    """Raise or ignore the warnings of torch in this block; one thread at a time.

    Warning filters hold for the whole process: if two threads set and restore them at the same
    time, the last one would leave what the first one had set. Files are read in several threads.
    """
    with _READING, warnings.catch_warnings():
        warnings.filterwarnings(action, module=r"torch\.")
        yield


class DamagedFeaturesError(ValueError):
    """A feature file that cannot be trusted; the message says what is wrong with it."""


@dataclass(frozen=True)
class Features:
    """``ids`` and their embeddings ``data``, float32 ``[len(ids), width]``, row by row."""

    ids: list[str]
    data: torch.Tensor


class _PieceList:
    """The file that ``torch.save`` writes to; it keeps the pieces without copying ``data``."""

    def __init__(self, data: torch.Tensor) -> None:
        self._rows = data.numpy()
        self.pieces: list[bytes | memoryview] = []

    def write(self, piece: memoryview) -> int:
        array = np.frombuffer(piece, np.uint8)
        if len(piece) == self._rows.nbytes and array.ctypes.data == self._rows.ctypes.data:
            self.pieces.append(self._rows.data.cast("B"))
        else:
            self.pieces.append(bytes(piece))  # its memory is torch's, which uses it again
        return len(piece)

    def flush(self) -> None:
        """Do nothing: every piece is kept as it comes."""


def encode_features(features: Features, kind: Kind) -> list[bytes | memoryview]:
    """Return the bytes of a feature file, in pieces. The same features give the same bytes.

    The numbers are those of ``features``, not a copy. Nothing is written here: ``torch.save`` onto
    a full disk fails without saying so.
    """
    data = features.data.contiguous()
    if data.untyped_storage().nbytes() > data.nbytes:
        data = data.clone()  # of rows of a larger tensor, torch.save would write all
    out = _PieceList(data)
    document = {_ID_KEY[kind]: features.ids, "data": data, "schema": SCHEMA}
    torch.save(document, out)  # type: ignore[arg-type]
    return out.pieces


def all_finite(data: torch.Tensor) -> bool:
    """Return whether no value of a float32 tensor is NaN or infinite.

    A sum with a term that is not finite is not finite, and takes a twentieth of the time of looking
    at every value. Every value is looked at only if the sum is too large for a float32.
    """
    return bool(torch.isfinite(data.sum())) or bool(torch.isfinite(data).all())


def load_features(path: Path, kind: Kind, *, mapped: bool = False) -> Features:
    """Read a feature file of either format, without running anything that is pickled in it.

    ``mapped`` leaves the numbers on the disk: a row is read when it is asked for, once it has
    been looked through here.

    Raises:
        DamagedFeaturesError: unreadable, of another kind, rows and ids do not match, an id occurs
            twice, rows differ in width, or a value is not finite.
    """
    document = _unpickled(path, mapped)
    if not isinstance(document, Mapping) or not {_ID_KEY[kind], "data"} <= set(document):
        raise DamagedFeaturesError(f"{path.name} is not a file of {kind} features")
    ids = document[_ID_KEY[kind]]
    if not isinstance(ids, list) or not all(isinstance(i, str) for i in ids):
        raise DamagedFeaturesError(f"{path.name} has ids that are not text")
    data = _as_tensor(document["data"], ids, path.name)
    if len(set(ids)) != len(ids):
        raise DamagedFeaturesError(f"{path.name} names a sequence twice")
    if not all_finite(data):
        raise DamagedFeaturesError(f"{path.name} has values that are not finite")
    return Features(list(ids), data)


def map_rows(path: Path) -> torch.Tensor:
    """The rows of a merged file that :func:`load_features` accepted, mapped and not looked through.

    float32 ``[n, width]``. For a process that shares the file with the one that checked it.

    Raises:
        DamagedFeaturesError: the file is gone or another one.
    """
    document = _unpickled(path, True)
    data = document["data"] if isinstance(document, Mapping) and "data" in document else None
    if not isinstance(data, torch.Tensor) or data.dim() != 2:
        raise DamagedFeaturesError(f"{path.name} is not a file of merged features")
    return data.to(torch.float32)


def _unpickled(path: Path, mapped: bool) -> Any:
    """Return the content of a ``.pt`` file in torch's zip format, the only one since torch 1.6."""
    try:
        if zipfile.is_zipfile(path):
            with warnings_of_torch("error"):  # of some damaged pickles it only warns
                mapped = mapped and _is_text(path)
                return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except _UNREADABLE as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DamagedFeaturesError(f"{path.name} cannot be read: {reason}") from error
    raise DamagedFeaturesError(f"{path.name} cannot be read: it is truncated, or not a .pt file")


def _is_text(path: Path) -> bool:
    """Return whether a path is valid text: torch cannot map a file of another name."""
    return not any(0xD800 <= ord(letter) <= 0xDFFF for letter in str(path))


def _as_tensor(data: Any, ids: list[str], name: str) -> torch.Tensor:
    """Return rows of any accepted format as float32 ``[n, width]``."""
    if isinstance(data, list):
        rows = []
        for row, expected in zip(data, ids, strict=False):
            if isinstance(row, Mapping):
                if row.get("label") != expected:
                    raise DamagedFeaturesError(f"{name} has rows in another order than its ids")
                row = row.get("mean_representation")
            rows.append(row)
        try:
            tensors = [torch.as_tensor(row, dtype=torch.float32) for row in rows]
            stacked = torch.stack(tensors) if tensors else torch.zeros(0, 0)
        except (TypeError, ValueError, RuntimeError) as error:
            raise DamagedFeaturesError(
                f"{name} has rows that are not vectors of one width"
            ) from error
        data = stacked if len(data) == len(ids) else stacked[:0]
    if not isinstance(data, torch.Tensor) or data.dim() != 2 or data.shape[0] != len(ids):
        raise DamagedFeaturesError(f"{name} has {len(ids)} ids but other rows")
    return data.to(torch.float32)
