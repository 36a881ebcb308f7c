"""What an encoder family is: everything the program knows about one kind of encoder.

ESM-2, DNABERT-S, lite and toy are families, and so is whatever another package registers; see
docs/encoders.md for a worked example. Nothing outside this folder asks for a family by its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from virnucpro.contracts import Encoder, Json, Molecule, ReportProgress
from virnucpro.errors import ModelError
from virnucpro.precision import PRECISIONS
from virnucpro.store.disk import HOST_NAME
from virnucpro.store.hashed import HashedFile

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch


BASES = "ACGT"
RESIDUES = "LAGVSERTIDPKQNFYMHWC"
# Letters of a full frame of a 500 base chunk.
LETTERS_PER_FRAME: Mapping[Molecule, int] = {"nucleotide": 499, "protein": 166}
Reading = Literal["open frames", "whole chunks"]
"""What of a chunk an encoder reads: every frame without a stop codon, or the chunk as it is."""


@dataclass(frozen=True)
class EncoderSource:
    """An encoder that was located on this machine; what a stage holds and a worker opens."""

    family: str
    name: str  # what the user asked for
    path: Path | None  # weights file or model folder; None where the family has no weights
    files: tuple[HashedFile, ...]  # all whose content decides the result, in a fixed order
    sha256: str  # one digest over their contents, whatever the files are called
    dim: int  # width of an embedding
    reading: Reading = "open frames"

    @property
    def weights(self) -> Path:
        """The weights file or model folder of an encoder that has one."""
        assert self.path is not None, f"{self.family} has no weights"
        return self.path


def refuse_changed_models(*files: HashedFile) -> None:
    """Raise ModelError where a model file is gone or has other content.

    What was loaded is what was hashed if this passes afterwards.
    """
    for file in files:
        if file.changed:
            raise ModelError(f"{file.path} on {HOST_NAME} is not the file that the run began with")


@dataclass(frozen=True)
class OpenOptions:
    """How an encoder is opened."""

    device: str  # ``cpu``, ``cuda`` or ``cuda:N``
    precision: str  # a name of :data:`virnucpro.precision.PRECISIONS`
    budget: int | None  # limit of a batch, in the unit of the family; None chooses one
    truncation: int  # residues of a protein that count


def _one_file(path: Path) -> tuple[Path, ...]:
    return (path,)


@dataclass(frozen=True, kw_only=True)
class EncoderFamily:
    """One kind of encoder: how to recognise, open and describe it.

    A family is declared once, and registered in ``virnucpro.encoders.registry`` or, from another
    package, through the entry-point group ``virnucpro.encoders``. A ``path`` is a weights file, or
    a folder with ``config.json``. What is called with one may raise a ModelError.

    Attributes:
        name: unique; also the name of the entry point.
        title: what people call it.
        molecule: what it reads.
        alphabet: letters of sequences that are made up to measure it.
        open: loads an encoder onto the device.
        width: the width of an embedding, read without the weights; a number where it has none.
        recognises: whether ``path`` is of this family.
        files: the files whose content decides the result, in a fixed order.
        reading: what of a chunk it reads. An encoder of whole chunks reads nucleotides, and works
            without a second encoder for proteins.
        precisions: those it can compute in; empty where it computes in the same way whatever is
            asked for.
        instead: what it computes in where another precision is chosen from which it gains nothing.
        version: raise it when the same files, or no files, give other embeddings than before.
        released: layers, width and attention heads of the released models, by name.
        caution: what users are told about results made with it; empty for nothing.
        packaged: the weights that come with the package and are found by the family's name.
    """

    name: str
    title: str
    molecule: Molecule
    alphabet: str
    open: Callable[[EncoderSource, OpenOptions], Encoder]
    width: int | Callable[[Path], int]
    recognises: Callable[[Path], bool] = lambda path: False
    files: Callable[[Path], tuple[Path, ...]] = _one_file
    reading: Reading = "open frames"
    precisions: tuple[str, ...] = tuple(PRECISIONS)
    instead: Mapping[str, str] = field(default_factory=dict)
    version: int = 1
    released: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    caution: str = ""
    packaged: Path | None = None

    @property
    def has_weights(self) -> bool:
        """Whether its encoders are read from files."""
        return not isinstance(self.width, int)


class WeightlessEncoder(ABC):
    """An encoder that is a formula: no weights, fixed batches, on the CPU.

    A subclass says how wide an embedding is and how a batch is embedded.
    """

    dim: ClassVar[int]
    batch_size: ClassVar[int] = 2048  # sequences
    host_wait_seconds = 0.0

    def __init__(self, truncation: int | None = None) -> None:
        """``truncation`` is how many letters of a sequence are read; None reads all of them."""
        self._truncation = truncation

    @abstractmethod
    def embed(self, sequences: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed a batch: float32 ``[len(sequences), dim]``."""

    def encode(self, sequences: Sequence[str], report: ReportProgress) -> torch.Tensor:
        """Embed ``sequences``: float32 ``[n, dim]``, in their order. A token is a letter."""
        import torch

        rows = torch.empty(len(sequences), self.dim)
        for start in range(0, len(sequences), self.batch_size):
            batch = [s[: self._truncation] for s in sequences[start : start + self.batch_size]]
            rows[start : start + len(batch)] = torch.from_numpy(self.embed(batch))
            report(len(batch), sum(map(len, batch)))
        return rows

    def facts(self) -> Mapping[str, Json]:
        """Return the batch budget, which is the same everywhere."""
        return {"budget": self.batch_size, "unit": "sequences", "found": "default"}

    def shrink(self) -> bool:
        """Return False: the batches take no memory worth saving."""
        return False
