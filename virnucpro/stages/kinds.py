"""Whether a virus is one of prokaryotes or of eukaryotes, from embeddings of the bundled ``lite``.

It is asked of records that are classified as viral, whichever model did so.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from virnucpro.errors import ModelError
from virnucpro.io.frames import chunk_spans
from virnucpro.settings import SHORTEST_WHOLE
from virnucpro.store.disk import sha256_of

HEAD = Path(__file__).parents[1] / "data/lite_kinds.safetensors"
WINDOW = 500  # bases, the longest chunk that lite was trained on
MOST_WINDOWS = 8  # of a record, evenly spread
CERTAIN = 1.5  # log odds; held out, more than nine in ten kinds beyond it are right
PHAGE, EUKARYOTIC, UNSURE = "phage", "eukaryotic virus", "unsure"


class VirusKinds:
    """A linear layer on the embeddings of lite, which examples/lite/kinds.py has fitted."""

    def __init__(self) -> None:
        """Read both. Raises ModelError where they do not belong together."""
        # Most commands that write results have no torch yet, and many find no virus.
        import torch
        from safetensors import safe_open

        from virnucpro.encoders.lite import LITE, LiteEncoder, read_lite

        path = LITE.packaged()
        with safe_open(HEAD, "pt") as file:
            self._weights, self._bias = file.get_tensor("weights"), file.get_tensor("bias")
            known = (file.metadata() or {}).get("encoder_sha256")
        if known != sha256_of(path):
            raise ModelError(f"{HEAD} is not of the encoder {path}: install virnucpro again")
        self._encoder = LiteEncoder(read_lite(path).fused(), torch.device("cpu"), "fp32")

    def of(self, records: Sequence[Sequence[str]]) -> list[str]:
        """Return the kinds of records, each from its windows (:func:`windows`)."""
        embedded = self._encoder.encode([each for own in records for each in own], lambda *_: None)
        log_odds = (self._bias + embedded.mv(self._weights)).split([*map(len, records)])
        means = [float(own.mean()) if len(own) else 0.0 for own in log_odds]
        kinds = [PHAGE if mean > 0 else EUKARYOTIC for mean in means]
        return [k if abs(m) >= CERTAIN else UNSURE for k, m in zip(kinds, means, strict=True)]


def windows(sequences: Sequence[str]) -> list[str]:
    """Return the windows of a record, or of both mates of a pair, that its kind follows from."""
    places = [
        (text, start, stop)
        for text in sequences
        for start, stop in chunk_spans(len(text), WINDOW)
        if stop - start >= SHORTEST_WHOLE
    ]
    chosen = places[:: -(-len(places) // MOST_WINDOWS) or 1]
    return [text[start:stop] for text, start, stop in chosen]
