"""Stored features of proteins: those of ``rcl embed``, and the archive of RCL-identifier."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open

from virnucpro.compute.threads import one_thread
from virnucpro.errors import InputError, UsageError
from virnucpro.rcl.features import ProteinEncoder
from virnucpro.store.disk import sha256_of
from virnucpro.store.documents import unsealed

STEM = "features"
INDEX = "index.json"


def sequence_key(sequence: str) -> str:
    """Return the name of a protein in a file of features."""
    return hashlib.sha256(sequence.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class StoredFeatures:
    """Features that ``rcl embed`` stored. They are read when they are needed.

    Attributes:
        folder: of the features.
        width: numbers per residue.
        identity: SHA-256 of the index, which names the SHA-256 of every file.
        files: the files.
    """

    folder: Path
    width: int
    identity: str
    files: tuple[str, ...]

    def missing(self, sequences: Sequence[str]) -> list[str]:
        """Return those of ``sequences`` that have no features."""
        known = self.opened().keys
        return [sequence for sequence in sequences if sequence_key(sequence) not in known]

    def opened(self) -> FeatureFiles:
        """Return what reads the features in this process."""
        return FeatureFiles([self.folder / name for name in self.files])


class FeatureFiles(ProteinEncoder):
    """Files of features that are open; a tensor is read from the disk when it is asked for."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Read which proteins each file holds.

        Raises:
            InputError: a file is missing or damaged.
        """
        self._files: list[Any] = []
        self.keys: dict[str, int] = {}
        for number, path in enumerate(paths):
            try:
                self._files.append(safe_open(path, "pt"))
                self.keys |= dict.fromkeys(self._files[-1].keys(), number)
            except (SafetensorError, OSError) as error:
                raise InputError(
                    f"{path} cannot be read ({error}): repeat virnucpro rcl embed"
                ) from error

    def encode(self, sequence: str) -> npt.NDArray[np.float32]:
        """Return the features of a protein, float32 ``[len(sequence), width]``."""
        key = sequence_key(sequence)
        with one_thread():
            rows: torch.Tensor = self._files[self.keys[key]].get_tensor(key)
            return rows.float().numpy()


@dataclass(frozen=True)
class ArchivedFeatures:
    """Features of RCL-identifier, an ``.npz`` file: read as a whole, and never unpickled.

    Attributes:
        path: the file.
        width: numbers per residue.
        identity: SHA-256 of the file.
    """

    path: Path
    width: int
    identity: str

    @cached_property
    def _arrays(self) -> tuple[npt.NDArray[np.float32], dict[str, int]]:
        return _read_archive(self.path)

    def missing(self, sequences: Sequence[str]) -> list[str]:
        """Return those of ``sequences`` that have no features."""
        return [sequence for sequence in sequences if sequence not in self._arrays[1]]

    def opened(self) -> ProteinEncoder:
        """Return itself: the arrays are read when they are first needed."""
        return self

    def encode(self, sequence: str) -> npt.NDArray[np.float32]:
        """Return the features of a protein, float32 ``[len(sequence), width]``."""
        encodings, rows = self._arrays
        return encodings[rows[sequence], : len(sequence)]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the arrays out where it is sent to another process."""
        return {"path": self.path, "width": self.width, "identity": self.identity}


def _read_archive(path: Path) -> tuple[npt.NDArray[np.float32], dict[str, int]]:
    """Return ``encodings`` ``[n, L, width]`` of an archive, and the row of each sequence."""
    again = "make the features again: virnucpro rcl embed --serpins FILE --others FILE"
    try:
        with np.load(path, allow_pickle=False) as archive:
            sequences, encodings = archive["sequences"], archive["encodings"]
    except ValueError as error:
        raise UsageError(
            f"{path} holds pickled objects, which are not read because they could run any "
            f"program: {again}"
        ) from error
    except (OSError, KeyError, EOFError) as error:
        raise UsageError(f"{path} does not hold features of proteins ({error}): {again}") from error
    if encodings.ndim != 3 or encodings.dtype != np.float32 or len(sequences) != len(encodings):
        raise UsageError(f"{path}: its arrays do not belong together: {again}")
    return encodings, {str(sequence): row for row, sequence in enumerate(sequences)}


def open_features(path: Path) -> StoredFeatures | ArchivedFeatures:
    """Find stored features: a folder of ``rcl embed``, or an ``.npz`` file of RCL-identifier.

    Raises:
        UsageError: it is neither, or the file cannot be read without running what is pickled.
        InputError: the index is damaged.
    """
    if path.suffix == ".npz":
        encodings, _ = _read_archive(path)
        return ArchivedFeatures(path, int(encodings.shape[2]), sha256_of(path))
    index = path / INDEX
    if not index.is_file():
        raise UsageError(f"{path} has no features: expected a folder of virnucpro rcl embed")
    try:
        document = unsealed(index.read_bytes())
        files = {str(name): str(digest) for name, digest in document["files"].items()}
        width = int(document["width"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{index} is damaged: repeat virnucpro rcl embed") from error
    if any(Path(name).name != name for name in files):
        raise InputError(f"{index} is damaged: repeat virnucpro rcl embed")
    return StoredFeatures(path.absolute(), width, sha256_of(index), tuple(files))
