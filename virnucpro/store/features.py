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

import io
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

import torch

from virnucpro.layout import FeatureKind

SCHEMA = 1
_ID_KEY: dict[FeatureKind, str]
_ID_KEY = {"nucleotide": "nucleotide", "protein": "proteins", "merged": "ids"}


# What torch.load raises on damaged files; the second line was found by fuzzing.
UNREADABLE: tuple[type[Exception], ...]
UNREADABLE = (OSError, RuntimeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile)
UNREADABLE += (LookupError, AttributeError, TypeError, AssertionError, ValueError)
UNREADABLE += (struct.error, OverflowError, MemoryError, Warning)


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


def encode_features(features: Features, kind: FeatureKind) -> bytes:
    """Return the bytes of a feature file. The same features give the same bytes.

    Nothing is written here: ``torch.save`` onto a full disk fails without saying so.
    """
    data = features.data.contiguous()
    if data.untyped_storage().nbytes() > data.nbytes:
        data = data.clone()  # of rows of a larger tensor, torch.save would write all
    out = io.BytesIO()
    torch.save({_ID_KEY[kind]: features.ids, "data": data, "schema": SCHEMA}, out)
    return out.getvalue()


def all_finite(data: torch.Tensor) -> bool:
    """Return whether no value of a float32 tensor is NaN or infinite.

    A sum with a term that is not finite is not finite, and takes a twentieth of the time of looking
    at every value. Every value is looked at only if the sum is too large for a float32.
    """
    return bool(torch.isfinite(data.sum())) or bool(torch.isfinite(data).all())


def load_features(path: Path, kind: FeatureKind, *, mapped: bool = False) -> Features:
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
    data = document["data"]
    if isinstance(data, list):
        data = _stacked(data, ids, path.name)
    if not isinstance(data, torch.Tensor) or data.dim() != 2 or data.shape[0] != len(ids):
        raise DamagedFeaturesError(f"{path.name} has {len(ids)} ids but other rows")
    if len(set(ids)) != len(ids):
        raise DamagedFeaturesError(f"{path.name} names a sequence twice")
    data = data.to(torch.float32)
    if not all_finite(data):
        raise DamagedFeaturesError(f"{path.name} has values that are not finite")
    return Features(list(ids), data)


def map_rows(path: Path) -> torch.Tensor:
    """The rows of a merged file, mapped; for a process that knows that it was checked.

    float32 ``[n, width]``, of a file that :func:`load_features` accepted.
    """
    rows: torch.Tensor = _unpickled(path, True)["data"]
    return rows.to(torch.float32)


def _unpickled(path: Path, mapped: bool) -> Any:
    """Return the content of a ``.pt`` file in torch's zip format, the only one since torch 1.6."""
    try:
        if zipfile.is_zipfile(path):
            with warnings_of_torch("error"):  # of some damaged pickles it only warns
                # torch cannot map a file whose name is no valid text
                mapped = mapped and not any("\ud800" <= letter <= "\udfff" for letter in str(path))
                return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except UNREADABLE as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DamagedFeaturesError(f"{path.name} cannot be read: {reason}") from error
    raise DamagedFeaturesError(f"{path.name} cannot be read: it is truncated, or not a .pt file")


def _stacked(rows: list[Any], ids: list[str], name: str) -> torch.Tensor:
    """Return rows in the formats of version 1 as one tensor."""
    labels = ids
    try:
        if rows and isinstance(rows[0], Mapping):
            labels = [row["label"] for row in rows]
            rows = [row["mean_representation"] for row in rows]
        tensors = [torch.as_tensor(row, dtype=torch.float32) for row in rows]
        data = torch.stack(tensors) if tensors else torch.zeros(0, 0)
    except (TypeError, ValueError, RuntimeError, LookupError) as error:
        raise DamagedFeaturesError(f"{name} has rows that are not vectors of one width") from error
    if labels != ids[: len(labels)]:
        raise DamagedFeaturesError(f"{name} has rows in another order than its ids")
    return data
