"""Which models there are, and what each of them says about proteins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.contracts import Device
from virnucpro.encoders.esm2 import Esm2Encoder
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import open_encoder
from virnucpro.errors import DeviceError, ModelError
from virnucpro.rcl.features import locate_esm2
from virnucpro.rcl.models import (
    ENCODING_OF_WIDTH,
    RELEASED_ESM2,
    WINDOW,
    FeaturesOfResidues,
    Floats,
    RclModel,
    read_rcl_model,
)
from virnucpro.rcl.profile import PROFILE_SUFFIX, RclProfile, read_profile
from virnucpro.rcl.proteins import RclResult, Region

SHIPPED = Path(__file__).parents[1] / "data"
PREFIX = "rcl_"  # of the files of shipped models
DEFAULT_MODEL = "hmm"


@dataclass
class RclFinder:
    """A model with its settings, ready to be used. Picklable until it is settled on a device.

    ``threshold``, ``min_consecutive`` and ``min_rcl_length`` are the rule of
    :func:`find_region`; for a profile only the last one counts. ``esm2``
    computes the features for a network that needs them.
    """

    label: str  # what the tables call the model
    model: RclModel | RclProfile
    threshold: float
    min_consecutive: int
    min_rcl_length: int
    sha256: str
    files: tuple[Path, ...]  # that it was read from
    batch_size: int | None = None
    esm2: EncoderSource | None = None
    precision: str = "fp32"  # of the features
    features: FeaturesOfResidues | None = field(init=False, default=None)

    def settle(self, device: Device) -> None:
        """Compute on ``device`` from now on, the features, too; a profile stays on the CPU."""
        if self.esm2 is not None:
            encoder = open_encoder(
                self.esm2, device.kind, self.precision, budget=None, truncation=WINDOW
            )
            assert isinstance(encoder, Esm2Encoder)

            def features(sequences: Sequence[str]) -> list[Floats]:
                rows = encoder.encode_residues(sequences, lambda sequences, tokens: None)
                # As they are stored, and as a network is trained on them.
                return [row.half().float().numpy() for row in rows]

            self.features = features
        if isinstance(self.model, RclModel) and device.kind == "cuda":
            self.model.network.to("cuda")
            # Results as on the CPU: TF32 changes probabilities in the third decimal place.
            torch.backends.cudnn.allow_tf32 = False

    def find(self, sequences: Sequence[str]) -> list[RclResult]:
        """Return what the model says about each protein; none of them is empty.

        To models of RCL-identifier, a small letter is an unknown residue; for others it stands for
        the amino acid.
        """
        if isinstance(self.model, RclProfile):
            return self.model.find(sequences, self.min_rcl_length)
        if not self.model.padded:
            sequences = [sequence.upper() for sequence in sequences]
        try:
            rows = self.model.probabilities(
                sequences, batch_size=self.batch_size, features=self.features
            )
        except torch.OutOfMemoryError as error:
            raise DeviceError("out of GPU memory: use a smaller --batch-size") from error
        results = []
        for probabilities in rows:
            region = find_region(
                probabilities, self.threshold, self.min_consecutive, self.min_rcl_length
            )
            above = bool((probabilities > self.threshold).any())
            status = "found" if region else "too_short" if above else "below_threshold"
            results.append(RclResult(status, region, probabilities))
        return results


def open_finder(
    name: str,
    *,
    threshold: float | None = None,
    min_consecutive: int = 12,
    min_rcl_length: int = 7,
    batch_size: int | None = None,
    esm_model: str | None = None,
) -> RclFinder:
    """Open a model, by a shipped name or a path. It computes on the CPU until it is settled.

    The rule is that of RCL-identifier, with the threshold of the model, where nothing else is said.
    A network with an ESM-2 encoding needs an ESM-2 model that computes the features:
    ``esm_model``, or the released one of that size if None. Others do without.
    """
    shipped = {path.stem.removeprefix(PREFIX): path for path in sorted(SHIPPED.glob(f"{PREFIX}*"))}
    path = shipped.get(name, Path(name))
    if not path.exists():
        raise ModelError(f"--model {name}: no such file, and not one of {', '.join(shipped)}")
    read = read_profile if path.suffix == PROFILE_SUFFIX else read_rcl_model
    model: RclProfile | RclModel = read(path)
    file_name = f"{re.sub(r'[^!-~]', '_', path.name)}:{model.sha256[:8]}"
    finder = RclFinder(
        name if name in shipped else file_name,
        model,
        model.threshold if threshold is None else threshold,
        min_consecutive,
        min_rcl_length,
        sha256=model.sha256,
        files=(path,),
        batch_size=batch_size,
    )
    if model.encoding in RELEASED_ESM2:
        source = locate_esm2(esm_model or RELEASED_ESM2[model.encoding][0])
        if ENCODING_OF_WIDTH.get(source.dim) != model.encoding:
            raise ModelError(f"--model {name} needs {model.encoding}, not {source.name}")
        finder.esm2 = source
        finder.sha256 = f"{model.sha256} {source.sha256}"
        finder.files += tuple(file.path for file in source.files)
    return finder


# --- the rule


def find_region(
    probabilities: npt.NDArray[np.float32],
    threshold: float,
    min_consecutive: int,
    min_rcl_length: int,
) -> Region | None:
    """Return the RCL of a protein by the rule of RCL-identifier; None where there is none.

    ``probabilities`` are float32 ``[L]``, one per residue. Of the runs of ``min_consecutive``
    residues or more above ``threshold``, the longest is the RCL, and of equal ones the first, if it
    has ``min_rcl_length`` residues.
    """
    above = np.concatenate(([False], probabilities > threshold, [False]))
    starts, stops = np.flatnonzero(above[1:] != above[:-1]).reshape(-1, 2).T
    lengths = stops - starts
    lengths[lengths < min_consecutive] = 0
    if not lengths.size or lengths.max() < max(min_rcl_length, 1):
        return None
    longest = int(lengths.argmax())
    start, stop = int(starts[longest]), int(stops[longest])
    return start + 1, stop, float(probabilities[start:stop].mean(dtype=np.float64))
