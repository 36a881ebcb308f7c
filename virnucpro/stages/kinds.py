"""The kind of a virus, and whether it is unfamiliar, from embeddings of the bundled ``lite``.

It is asked of records that are classified as viral, whichever model did so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from virnucpro.columns import MISSING
from virnucpro.errors import ModelError
from virnucpro.io.frames import GAP, chunk_spans
from virnucpro.settings import SHORTEST_WHOLE
from virnucpro.store.hashed import hashed

if TYPE_CHECKING:
    import torch

HEAD = Path(__file__).parents[1] / "data/lite_kinds.safetensors"
WINDOW = 500  # bases, the longest chunk that lite was trained on
MOST_WINDOWS = 8  # of a record, evenly spread
CERTAIN = 1.5  # log odds; held out, more than nine in ten kinds beyond it are right
PHAGE, EUKARYOTIC, UNSURE = "phage", "eukaryotic virus", "unsure"
NEAREST = 5  # typical embeddings that a record is compared with


class Kind(NamedTuple):
    """What is said of a virus beside its score."""

    virus_kind: str
    unfamiliar: str  # yes where nothing that lite was trained on is like it; else no, or NA


class VirusKinds:
    """What examples/lite/kinds.py has fitted on the embeddings of lite.

    ``weights`` (512) and ``bias`` are a linear layer that tells the kind. ``typical`` (1,000 x 256,
    fp16) are unit vectors, the centres of embeddings of training pieces by the second network. A
    record is unfamiliar where its mean cosine to the nearest of them is below ``least``, which
    depends on the bases that were read of it: ``lengths`` has those that it was measured at.
    """

    def __init__(self) -> None:
        """Read both. Raises ModelError where they do not belong together."""
        # Most commands that write results have no torch yet, and many find no virus.
        import torch
        from safetensors import safe_open

        from virnucpro.encoders.lite import PACKAGED, LiteEncoder, read_lite

        with safe_open(HEAD, "pt") as file:
            self._weights, self._bias = file.get_tensor("weights"), file.get_tensor("bias")
            self._typical = file.get_tensor("typical").float()
            self._lengths, self._least = file.get_tensor("lengths"), file.get_tensor("least")
            known = (file.metadata() or {}).get("encoder_sha256")
        if known != hashed(PACKAGED).sha256:
            raise ModelError(f"{HEAD} is not of the encoder {PACKAGED}: install virnucpro again")
        self._encoder = LiteEncoder(read_lite(PACKAGED), torch.device("cpu"), "fp32")

    def of(self, records: Sequence[Sequence[str]]) -> list[Kind]:
        """Return the kinds of records, each from its windows (:func:`windows`)."""
        from torch import split

        embedded = self._encoder.encode([each for own in records for each in own], lambda *_: None)
        parts = split(embedded, [*map(len, records)])
        return [
            self._kind(part.mean(dim=0), sum(map(len, own))) if own else Kind(UNSURE, MISSING)
            for part, own in zip(parts, records, strict=True)
        ]

    def _kind(self, embedding: torch.Tensor, bases: int) -> Kind:
        """Return the kind of a record from its mean embedding, of so many bases."""
        log_odds = float(self._bias + embedding @ self._weights)
        least = np.interp(bases, self._lengths, self._least)
        unfamiliar = "yes" if likeness_to(self._typical, embedding[None]) < least else "no"
        if abs(log_odds) < CERTAIN:
            return Kind(UNSURE, unfamiliar)
        return Kind(PHAGE if log_odds > 0 else EUKARYOTIC, unfamiliar)


@cache
def virus_kinds() -> VirusKinds:
    """Return what tells the kinds, the same for all runs: its network takes long to read."""
    return VirusKinds()


def likeness_to(typical: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
    """Return the mean cosine of each embedding, by its last numbers, to the nearest ``typical``."""
    embeddings = embeddings[:, -typical.shape[1] :]
    cosines: torch.Tensor = embeddings / embeddings.norm(dim=1, keepdim=True) @ typical.T
    return cosines.topk(min(NEAREST, len(typical)), dim=1).values.mean(dim=1)


def windows(sequences: Sequence[str]) -> list[str]:
    """Return the windows of a record, or of both mates of a pair, that its kind follows from."""
    places = [
        (text, start, stop)
        for text in (GAP.sub("N", sequence.upper()) for sequence in sequences)
        for start, stop in chunk_spans(len(text), WINDOW)
        if stop - start - text.count("N", start, stop) >= SHORTEST_WHOLE
    ]
    chosen = places[:: -(-len(places) // MOST_WINDOWS) or 1]
    return [text[start:stop] for text, start, stop in chosen]
