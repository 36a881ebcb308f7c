"""The lite encoders: small, trained on a data set by ``virnucpro train lite``, fast on any CPU.

An encoder is one safetensors file with the key ``virnucpro_lite`` in its metadata::

    {"schema": 1, "molecule": "protein", "dim": 256, "censuses": [{"groups": "A C D ...",
     "seed": "111111"}, ...], "extra": {...}}

Its tensors are those of :class:`Branch`, in 16 bits where they are large, and the deflated word
counts ``census.0`` and so on (:class:`WordCounts`). The pair that the package ships is called
``lite``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from virnucpro.compute.arithmetic import torch_dtype
from virnucpro.compute.threads import CoreThreads
from virnucpro.contracts import Json, ReportProgress
from virnucpro.encoders.family import BASES, EncoderFamily, EncoderSource, OpenOptions
from virnucpro.encoders.family import RESIDUES as RESIDUE_LETTERS
from virnucpro.encoders.lite_features import (
    CODONS,
    NUCLEOTIDE_FEATURES,
    PROTEIN_FEATURES,
    RESIDUES,
    WORD_COUNT_FEATURES,
    Letters,
    WordCounts,
    WordPattern,
    codons_of,
    nucleotide_features,
    protein_features,
    residues_of,
    unpacked_codes,
)
from virnucpro.encoders.weights import read_safetensors
from virnucpro.errors import ModelError
from virnucpro.layout import Molecule
from virnucpro.precision import PRECISIONS
from virnucpro.store.documents import parse_json

# --- the network -----------------------------------------------------------------------------

LETTER, CODE = 16, 8  # numbers per embedded letter, and per embedded code of word counts
NARROW, WIDE = 48, 64  # channels of the convolutions
REACH = 6.0  # standard deviations at which a feature is cut off
NO_CODE = 16  # at positions where no word begins


@dataclass(frozen=True)
class BranchShape:
    """Sizes of a branch.

    Attributes:
        letters: kinds of letters, the unknown one included.
        features: counts per frame.
        word_counts: word counts whose codes are read beside the letters.
        dim: width of an embedding.
    """

    letters: int
    features: int
    word_counts: int
    dim: int


class Branch(nn.Module):
    """One molecule of a frame to ``dim`` numbers."""

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, shape: BranchShape) -> None:
        super().__init__()
        self.letters = nn.Embedding(shape.letters, LETTER)
        self.codes = nn.ModuleList(
            nn.Embedding(NO_CODE + 1, CODE) for _ in range(shape.word_counts)
        )
        first = LETTER + CODE * shape.word_counts
        self.conv1 = nn.Conv1d(first, NARROW, 8, padding=4, stride=2)
        self.conv2 = nn.Conv1d(NARROW, WIDE, 5, padding=2, stride=2)
        self.norm1, self.norm2 = nn.BatchNorm1d(NARROW), nn.BatchNorm1d(WIDE)
        self.out = nn.Linear(shape.features + 2 * WIDE, shape.dim)
        self.norm = nn.BatchNorm1d(shape.dim)
        self.register_buffer("mean", torch.zeros(shape.features))
        self.register_buffer("scale", torch.ones(shape.features))

    def forward(
        self, letters: torch.Tensor, features: torch.Tensor, codes: torch.Tensor
    ) -> torch.Tensor:
        """Embed frames of one length ``L``.

        int64 ``[B, L]``, float32 ``[B, features]``, int64 ``[B, word_counts, L]`` to ``[B, dim]``.
        """
        embedded = [self.letters(letters)]
        embedded += [table(codes[:, number]) for number, table in enumerate(self.codes)]
        x = torch.cat(embedded, dim=2).transpose(1, 2)  # [B, first, L]
        x = F.gelu(self.norm1(self.conv1(x)))  # [B, NARROW, L/2 + 1]
        x = F.gelu(self.norm2(self.conv2(x))).float()  # [B, WIDE, L/4 + 1]
        counts = ((features - self.mean) / self.scale).clamp(-REACH, REACH)
        pooled = torch.cat([counts, x.mean(dim=2), x.amax(dim=2)], dim=1)
        out: torch.Tensor = F.gelu(self.norm(self.out(pooled)))
        return out


# --- the encoder -----------------------------------------------------------------------------

BATCH = 64  # frames; four per span of proteins, and 20 % more time than 256 takes on one core
SCHEMA = 1
_KEY = "virnucpro_lite"
Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def branch_shape(molecule: Molecule, word_counts: int, dim: int) -> BranchShape:
    """Return the sizes of the network of an encoder."""
    if molecule == "nucleotide":
        return BranchShape(CODONS + 1, NUCLEOTIDE_FEATURES, 0, dim)
    return BranchShape(
        RESIDUES + 1, PROTEIN_FEATURES + WORD_COUNT_FEATURES * word_counts, word_counts, dim
    )


def nucleotide_inputs(codons: Letters) -> Inputs:
    """Return what :meth:`Branch.forward` takes, from uint8 ``[n, codons]``."""
    nothing = torch.empty(len(codons), 0, codons.shape[1], dtype=torch.int64)
    features = torch.from_numpy(nucleotide_features(codons))
    return torch.from_numpy(codons.astype(np.int64)), features, nothing


def protein_inputs(residues: Letters, word_counts: Sequence[WordCounts]) -> Inputs:
    """Return what :meth:`Branch.forward` takes, from uint8 ``[n, residues]``."""
    codes = np.full((len(residues), len(word_counts), residues.shape[1]), NO_CODE, np.int64)
    for number, counts in enumerate(word_counts):
        known, whole = counts.look_up(residues)  # [n, positions]
        codes[:, number, : known.shape[1]] = np.where(whole, known, NO_CODE)
    features = torch.from_numpy(protein_features(residues, word_counts))
    return torch.from_numpy(residues.astype(np.int64)), features, torch.from_numpy(codes)


class LiteEncoder:
    """A branch on its device, called on frames of any lengths."""

    host_wait_seconds = 0.0

    def __init__(
        self,
        molecule: Molecule,
        branch: Branch,
        word_counts: Sequence[WordCounts],
        device: torch.device,
        precision: str,
        truncation: int | None,
    ) -> None:
        self._molecule = molecule
        self._branch = branch.to(device)
        self._word_counts = word_counts
        self._device = device
        self._dtype = torch_dtype(precision)
        self._truncation = truncation
        self._batch = BATCH
        self._threads = CoreThreads()

    @property
    def dim(self) -> int:
        """Width of an embedding."""
        return self._branch.out.out_features

    def encode(self, sequences: Sequence[str], report: ReportProgress) -> torch.Tensor:
        """float32 ``[n, dim]`` on the CPU. A token is a letter; batches are of one length."""
        out = torch.empty(len(sequences), self.dim)
        cut = [text[: self._truncation] for text in sequences]
        batches = self._batches([self._tokens(text) for text in cut])
        with closing(
            self._threads.map(lambda batch: self._forward([cut[i] for i in batch]), batches)
        ) as computed:
            for batch, rows in computed:
                out[batch] = rows
                report(len(batch), sum(len(cut[i]) for i in batch))
        return out

    def facts(self) -> Mapping[str, Json]:
        """Return the batch budget, which is the same on every device."""
        return {"budget": self._batch, "unit": "sequences", "found": "default"}

    def shrink(self) -> bool:
        """Halve the batches; False where they already are of one frame."""
        smaller = self._batch > 1
        self._batch = max(1, self._batch // 2)
        return smaller

    def _batches(self, lengths: list[int]) -> Iterator[list[int]]:
        order = sorted(range(len(lengths)), key=lambda i: lengths[i])
        for _, group in groupby(order, key=lambda i: lengths[i]):
            rows = list(group)
            for start in range(0, len(rows), self._batch):
                yield rows[start : start + self._batch]

    def _tokens(self, text: str) -> int:
        return len(text) // 3 if self._molecule == "nucleotide" else len(text)

    def _forward(self, texts: list[str]) -> torch.Tensor:
        if self._molecule == "nucleotide":
            whole = self._tokens(texts[0]) * 3  # a frame has up to two letters more
            inputs = nucleotide_inputs(codons_of([text[:whole] or "NNN" for text in texts]))
        else:
            inputs = protein_inputs(residues_of([text or "X" for text in texts]), self._word_counts)
        kind, half = self._device.type, self._dtype != torch.float32
        with torch.inference_mode(), torch.autocast(kind, self._dtype, enabled=half):
            letters, features, codes = (tensor.to(self._device) for tensor in inputs)
            rows: torch.Tensor = self._branch(letters, features, codes)
        return rows.float().cpu()


def lite_to_bytes(
    molecule: Molecule, branch: Branch, word_counts: Sequence[WordCounts], extra: Mapping[str, Json]
) -> bytes:
    """Return an encoder as a file; the same arguments give the same bytes.

    ``extra`` is anything worth keeping, such as the training command.
    """
    tensors = {
        name: (value.half() if value.ndim > 1 else value.float()).contiguous()
        for name, value in branch.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    for number, counts in enumerate(word_counts):
        tensors[f"census.{number}"] = torch.from_numpy(counts.packed().copy())
    metadata = {
        "schema": SCHEMA,
        "molecule": molecule,
        "dim": branch.out.out_features,
        "censuses": [{"groups": c.pattern.groups, "seed": c.pattern.seed} for c in word_counts],
        "extra": dict(extra),
    }
    return save(tensors, {_KEY: json.dumps(metadata, sort_keys=True)})


def read_lite(path: Path) -> tuple[Molecule, Branch, list[WordCounts]]:
    """Read the parts of an encoder.

    Raises:
        ModelError: it cannot be read, is damaged or from a newer program.
    """
    metadata = _metadata(path)
    if metadata is None:
        raise ModelError(f"{path} is not a lite encoder: it has no {_KEY!r} metadata")
    if metadata.get("schema") != SCHEMA:
        raise ModelError(
            f"{path} was written by another virnucpro (schema {metadata.get('schema')})"
        )
    try:
        molecule: Molecule = "nucleotide" if metadata["molecule"] == "nucleotide" else "protein"
        patterns = [WordPattern(str(c["groups"]), str(c["seed"])) for c in metadata["censuses"]]
        tensors = read_safetensors(path)
        packed = [tensors.pop(f"census.{number}") for number in range(len(patterns))]
        word_counts = [
            WordCounts(pattern, unpacked_codes(codes.numpy(), pattern.places))
            for pattern, codes in zip(patterns, packed, strict=True)
        ]
        branch = Branch(branch_shape(molecule, len(patterns), int(metadata["dim"])))
        counters = {k: v for k, v in branch.state_dict().items() if k.endswith("tracked")}
        branch.load_state_dict({name: t.float() for name, t in tensors.items()} | counters)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"{path} is damaged ({error}): get it again") from error
    if not all(bool(torch.isfinite(value).all()) for value in branch.state_dict().values()):
        raise ModelError(f"{path}: NaN or infinite values in its weights: get it again")
    return molecule, branch.eval().requires_grad_(False), word_counts


def _metadata(path: Path) -> dict[str, Any] | None:
    """Return what a lite file says of itself; None for any other file."""
    try:
        with safe_open(path, "pt") as file:
            metadata = parse_json((file.metadata() or {}).get(_KEY, "null"))
    except (SafetensorError, OSError, ValueError):
        return None
    return metadata if isinstance(metadata, dict) else None


# --- the family ------------------------------------------------------------------------------

PACKAGED = Path(__file__).parents[1] / "data"


class LiteFamily(EncoderFamily):
    """The lite encoders of one molecule."""

    title = "lite"
    # Too small to gain from 8 bits; its batches are too small to be given a budget.
    precisions = tuple(name for name, row in PRECISIONS.items() if row.linear_layers == "cast")

    def __init__(self, molecule: Molecule) -> None:
        self.molecule = molecule
        self.name = f"lite-{molecule}"
        self.alphabet = BASES if molecule == "nucleotide" else RESIDUE_LETTERS

    def packaged(self) -> Path:
        """Return the encoder of model type ``lite``."""
        return PACKAGED / f"lite_{self.molecule}.safetensors"

    def recognises(self, path: Path) -> bool:
        """Return whether the metadata of a file say so."""
        metadata = _metadata(path) if path.is_file() and path.suffix == ".safetensors" else None
        return metadata is not None and metadata.get("molecule") == self.molecule

    def width(self, path: Path | None) -> int:
        """Return the width that the metadata say."""
        assert path is not None
        width = (_metadata(path) or {}).get("dim")
        if not isinstance(width, int):
            raise ModelError(f"{path} does not say how wide its embeddings are: get it again")
        return width

    def open(self, source: EncoderSource, options: OpenOptions) -> LiteEncoder:
        """Load the weights onto the device. Raises ModelError where the file is damaged."""
        molecule, branch, word_counts = read_lite(source.weights)
        device = torch.device(options.device)
        truncation = options.truncation if molecule == "protein" else None
        return LiteEncoder(molecule, branch, word_counts, device, options.precision, truncation)


NUCLEOTIDE, PROTEIN = LiteFamily("nucleotide"), LiteFamily("protein")
