"""A network of the RCL predictor, and the probabilities that it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from virnucpro.contracts import Json
from virnucpro.rcl.encodings import RESIDUE_ENCODINGS
from virnucpro.rcl.networks import RCL

Floats = npt.NDArray[np.float32]
FeaturesOfResidues = Callable[[Sequence[str]], Sequence[Floats]]
"""Returns float32 ``[L, width]`` for each protein of L residues."""

Padding = Literal["masked", "padded 1024"]
MASKED: Padding = "masked"
"""The padding has no influence: the network is given a mask."""
PADDED: Padding = "padded 1024"
"""Every protein is padded with zeros to ``WINDOW`` residues, as RCL-identifier does."""

WINDOW = 1024
"""Residues that a network sees at once: RCL-identifier takes proteins up to this length."""
WINDOW_STEP = 512
"""Residues between the starts of two windows of a longer protein. The domain of a serpin has some
380 residues, so that each of them lies within one window as a whole."""
BATCH_RESIDUES = {"cpu": 1 << 14, "cuda": 1 << 18}
"""Residues of a batch with its padding, by the type of the device."""

RELEASED_ESM2 = {
    "esm2_8m": ("esm2_t6_8M_UR50D", 320),
    "esm2_35m": ("esm2_t12_35M_UR50D", 480),
    "esm2_150m": ("esm2_t30_150M_UR50D", 640),
    "esm2_650m": ("esm2_t33_650M_UR50D", 1280),
    "esm2_3b": ("esm2_t36_3B_UR50D", 2560),
    "esm2_15b": ("esm2_t48_15B_UR50D", 5120),
}
"""The encodings by ESM-2 models: the released model and its width. RCL-identifier named one."""
ENCODING_OF_WIDTH = {encoding.width: encoding.name for encoding in RESIDUE_ENCODINGS.values()} | {
    width: name for name, (_, width) in RELEASED_ESM2.items()
}


@dataclass(frozen=True)
class RclModel:
    """A network with all that is needed to use it.

    Attributes:
        network: in evaluation mode, float32.
        kind: ``cnn``, ``unet`` or ``lstm``.
        settings: the keyword arguments that the network was made with, beside the width.
        encoding: ``onehot``, ``blosum``, or a name of ``RELEASED_ESM2``.
        padding: ``masked`` or ``padded 1024``.
        threshold: probability above which a residue counts, unless the user says otherwise.
        training: facts on the training, as they were written down.
        sha256: of the file; empty where the model was not read from one.
    """

    network: nn.Module
    kind: str
    settings: Mapping[str, Json]
    encoding: str
    padding: Padding = MASKED
    threshold: float = 0.5
    training: Mapping[str, Json] = field(default_factory=dict)
    sha256: str = ""

    def probabilities(
        self,
        sequences: Sequence[str],
        *,
        batch_size: int | None = None,
        features: FeaturesOfResidues | None = None,
    ) -> list[Floats]:
        """Return the probability of each residue to lie in the RCL, float32 ``[L]`` per protein.

        Proteins longer than ``WINDOW`` are taken in overlapping windows. Each residue has the
        probability of the window in which it is farthest from the ends. Batches hold sequences of
        similar length, ``batch_size`` of them, or as many as ``BATCH_RESIDUES`` allows.
        ``features`` encodes the windows; it is needed for an ESM-2 encoding only.
        """
        features = features or RESIDUE_ENCODINGS[self.encoding].encode_all
        results = [np.zeros(len(sequence), np.float32) for sequence in sequences]
        windows = [
            (number, start, kept)
            for number, sequence in enumerate(sequences)
            for start, kept in windows_of(len(sequence))
        ]
        windows.sort(key=lambda window: min(len(sequences[window[0]]), WINDOW))
        device = next(self.network.parameters()).device
        lengths = [min(len(sequences[number]), WINDOW) for number, _, _ in windows]
        with torch.inference_mode():
            for batch in self._batches(lengths, batch_size, BATCH_RESIDUES[device.type]):
                chosen = windows[batch]
                texts = [sequences[number][start : start + WINDOW] for number, start, _ in chosen]
                rows = self._batch_probabilities(features(texts), device)
                for (number, start, kept), row in zip(chosen, rows, strict=True):
                    results[number][kept] = row[kept.start - start : kept.stop - start]
        return results

    def _batches(self, lengths: Sequence[int], size: int | None, most: int) -> Iterator[slice]:
        """Yield the batches of windows of these ``lengths``, which rise: ``most`` residues each."""
        start = 0
        for stop, length in enumerate([*lengths, 0]):
            full = (stop + 1 - start) * self._padded(length) > most
            full = stop - start == size if size else full
            if stop > start and (full or stop == len(lengths)):
                yield slice(start, stop)
                start = stop

    def _padded(self, longest: int) -> int:
        return WINDOW if self.padding == PADDED else longest

    def _batch_probabilities(self, features: Sequence[Floats], device: torch.device) -> Floats:
        """Return float32 ``[B, L]``; what stands behind the end of a protein means nothing."""
        lengths = torch.tensor([len(rows) for rows in features])
        length = self._padded(int(lengths.max()))
        x = np.zeros((len(features), length, features[0].shape[1]), np.float32)
        for row, values in zip(x, features, strict=True):
            row[: len(values)] = values
        mask = None
        if self.padding == MASKED:
            mask = (torch.arange(length) < lengths[:, None]).to(device)
        logits = self.network(torch.from_numpy(x).to(device), mask)
        probabilities: Floats = logits.softmax(-1)[..., RCL].cpu().numpy()
        return probabilities


def windows_of(length: int) -> list[tuple[int, slice]]:
    """Return the windows of a protein: the first residue, and the residues that are taken from it.

    The windows overlap, and every residue is taken from one of them: from the middle of the
    overlap on, from the later one. There is none for an empty protein.

    >>> windows_of(1600)
    [(0, slice(0, 768, None)), (512, slice(768, 1056, None)), (576, slice(1056, 1600, None))]
    """
    if length <= WINDOW:
        return [(0, slice(0, length))] if length else []
    starts = [*range(0, length - WINDOW, WINDOW_STEP), length - WINDOW]
    middles = [(earlier + WINDOW + later) // 2 for earlier, later in pairwise(starts)]
    edges = [0, *middles, length]
    return [
        (start, slice(first, stop))
        for start, (first, stop) in zip(starts, pairwise(edges), strict=True)
    ]
