"""Whether a virus is one of prokaryotes or of eukaryotes, from embeddings of the bundled ``lite``.

It is asked of records that are classified as viral, whichever model did so.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open

from virnucpro.encoders.lite import LITE, LiteEncoder, read_lite
from virnucpro.errors import ModelError
from virnucpro.io.frames import chunk_spans
from virnucpro.settings import SHORTEST_WHOLE
from virnucpro.store.disk import sha256_of

HEAD = Path(__file__).parents[1] / "data/lite_kinds.safetensors"
WINDOW = 500  # bases, the longest chunk that lite was trained on
MOST_WINDOWS = 8  # of a record, evenly spread; more hardly change the mean
CERTAIN = 1.5  # log odds; held out, more than nine in ten kinds beyond it are right
PHAGE, EUKARYOTIC, UNSURE = "phage", "eukaryotic virus", "unsure"


class VirusKinds:
    """A linear layer on the embeddings of lite, which examples/lite/kinds.py has fitted."""

    def __init__(self) -> None:
        """Read both. Raises ModelError where they do not belong together."""
        path = LITE.packaged()
        with safe_open(HEAD, "pt") as file:
            self._weights, self._bias = file.get_tensor("weights"), file.get_tensor("bias")
            known = (file.metadata() or {}).get("encoder_sha256")
        if known != sha256_of(path):
            raise ModelError(f"{HEAD} is not of the encoder {path}: install virnucpro again")
        self._encoder = LiteEncoder(read_lite(path).fused(), torch.device("cpu"), "fp32")

    def log_odds(self, sequences: Sequence[str]) -> torch.Tensor:
        """Return the natural log odds of phage: float32 ``[n]``."""
        embedded = self._encoder.encode(sequences, lambda *_: None)
        return torch.addmv(self._bias, embedded, self._weights)

    def kind(self, sequences: Sequence[str]) -> str:
        """Return the kind of a record, or of a pair, from its ``sequences``."""
        windows = [
            text[start:stop]
            for text in sequences
            for start, stop in chunk_spans(len(text), WINDOW)
            if stop - start >= SHORTEST_WHOLE
        ]
        step = -(-len(windows) // MOST_WINDOWS) or 1
        if not windows:
            return UNSURE
        mean = float(self.log_odds(windows[::step]).mean())
        return UNSURE if abs(mean) < CERTAIN else PHAGE if mean > 0 else EUKARYOTIC
