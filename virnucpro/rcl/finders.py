"""Which models there are, and what each of them says about proteins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from virnucpro.contracts import Device
from virnucpro.encoders.registry import locate
from virnucpro.errors import DeviceError, ModelError
from virnucpro.rcl.encodings import RESIDUE_ENCODINGS
from virnucpro.rcl.features import ResidueFeatures
from virnucpro.rcl.model_files import read_rcl_model
from virnucpro.rcl.models import (
    ESM2_ENCODINGS,
    MASKED,
    WINDOW,
    Floats,
    RclModel,
)
from virnucpro.rcl.profile import PROFILE_SUFFIX, RclProfile, read_profile
from virnucpro.rcl.rule import RclRegion, RegionRule, find_region

SHIPPED = Path(__file__).parents[1] / "data"
_PREFIX = "rcl_"  # of the files of shipped models
DEFAULT_MODEL = "blosum_unet"
RELEASED_ESM2 = {
    "esm2_8m": "esm2_t6_8M_UR50D",
    "esm2_35m": "esm2_t12_35M_UR50D",
    "esm2_150m": "esm2_t30_150M_UR50D",
    "esm2_650m": "esm2_t33_650M_UR50D",
    "esm2_3b": "esm2_t36_3B_UR50D",
    "esm2_15b": "esm2_t48_15B_UR50D",
}
"""The released ESM-2 model that computes an encoding."""


@dataclass(frozen=True)
class RclResult:
    """What a model says about a protein.

    Attributes:
        status: as in the table ``STEM_rcl.tsv``.
        region: the RCL, if it is found.
        probabilities: float32 ``[L]``.
    """

    status: str
    region: RclRegion | None
    probabilities: Floats


class RclFinder(Protocol):
    """A model with its settings, ready to be used.

    Attributes:
        label: what the tables call the model.
        encoding: what the names of result files say.
        sha256: of the model file.
        threshold: for the names of result files.
    """

    label: str
    encoding: str
    sha256: str
    threshold: float

    def settle(self, device: Device) -> None:
        """Compute on ``device`` from now on. Before this, a finder can be sent to a process."""

    def find(self, sequences: Sequence[str]) -> list[RclResult]:
        """Return what the model says about each protein; none of them is empty."""


class NetworkFinder:
    """A network and the rule that makes regions of its probabilities."""

    def __init__(
        self,
        label: str,
        model: RclModel,
        rule: RegionRule,
        *,
        batch_size: int | None = None,
        features: ResidueFeatures | None = None,
    ) -> None:
        """See :meth:`RclModel.probabilities` for ``batch_size`` and ``features``."""
        self.label = label
        self.encoding = model.encoding
        self.sha256 = model.sha256
        self.threshold = rule.threshold
        self._model, self._rule = model, rule
        self._batch_size, self._features = batch_size, features

    def settle(self, device: Device) -> None:
        """Compute on ``device`` from now on, and have it compute the features, if it needs some."""
        if self._features is not None:
            self._features.settle(device)
        if device.kind == "cuda":
            self._model.network.to("cuda")
            # Results as on the CPU: TF32 changes probabilities in the third decimal place.
            torch.backends.cudnn.allow_tf32 = False
            torch.backends.cuda.matmul.allow_tf32 = False

    def find(self, sequences: Sequence[str]) -> list[RclResult]:
        """Return what the network says about each protein.

        For models of our own, small letters are those of amino acids, too. To those of
        RCL-identifier a small letter is an unknown residue.

        Raises:
            DeviceError: the device has too little memory.
        """
        if self._model.padding == MASKED:
            sequences = [sequence.upper() for sequence in sequences]
        try:
            rows = self._model.probabilities(
                sequences, batch_size=self._batch_size, features=self._features
            )
        except torch.OutOfMemoryError as error:
            raise DeviceError(
                "out of GPU memory: is another program using the GPU? Else use a smaller "
                "--batch-size"
            ) from error
        results = []
        for probabilities in rows:
            region = find_region(probabilities, self._rule)
            above = bool((probabilities > self._rule.threshold).any())
            status = "found" if region else "too_short" if above else "below_threshold"
            results.append(RclResult(status, region, probabilities))
        return results


class ProfileFinder:
    """The profile of serpins."""

    encoding = "hmm"

    def __init__(self, label: str, profile: RclProfile, rule: RegionRule) -> None:
        """Of ``rule`` only the shortest RCL counts: the profile has no threshold."""
        self.label = label
        self.sha256 = profile.sha256
        self.threshold = rule.threshold
        self._profile, self._shortest = profile, rule.min_rcl_length

    def settle(self, device: Device) -> None:
        """Do nothing: a profile is compared on the CPU."""

    def find(self, sequences: Sequence[str]) -> list[RclResult]:
        """Return what the profile says about each protein."""
        results = []
        for result in self._profile.find(sequences):
            if result.region is not None and result.region.length < self._shortest:
                nothing = np.zeros_like(result.probabilities)
                results.append(RclResult("incomplete", None, nothing))
            else:
                results.append(RclResult(result.status, result.region, result.probabilities))
        return results


def shipped_models() -> dict[str, Path]:
    """Return the models of the package by name."""
    files = sorted(SHIPPED.glob(f"{_PREFIX}*"))
    return {path.stem.removeprefix(_PREFIX): path for path in files}


def locate_rcl_model(name: str) -> Path:
    """Return the file or folder of a model: a shipped name, or a path.

    Raises:
        ModelError: it is neither.
    """
    shipped = shipped_models()
    if name in shipped:
        return shipped[name]
    path = Path(name)
    if not path.exists():
        raise ModelError(
            f"--model {name}: there is neither a shipped model of that name "
            f"({', '.join(shipped) or 'none is part of this installation'}) nor such a file"
        )
    return path


def open_finder(
    name: str,
    *,
    threshold: float | None = None,
    min_consecutive: int = RegionRule.min_consecutive,
    min_rcl_length: int = RegionRule.min_rcl_length,
    batch_size: int | None = None,
    features: ResidueFeatures | None = None,
    esm_model: str | None = None,
) -> RclFinder:
    """Open a model, by a shipped name or a path. It computes on the CPU until it is settled.

    A network with an ESM-2 encoding needs ``features``, or an ESM-2 model that computes them:
    ``esm_model``, or the released one of that size if None. Others do without.

    Raises:
        ModelError: there is no such model, or it cannot be used.
        UsageError: the model needs a package that is not installed.
    """
    path = locate_rcl_model(name)
    default = RegionRule.threshold if threshold is None else threshold
    rule = RegionRule(default, min_consecutive, min_rcl_length)
    if path.suffix == PROFILE_SUFFIX:
        profile = read_profile(path)
        return ProfileFinder(_label(name, path, profile.sha256), profile, rule)
    model = read_rcl_model(path)
    if model.encoding not in RESIDUE_ENCODINGS and features is None:
        source = locate(esm_model or RELEASED_ESM2[model.encoding], "protein")
        if ESM2_ENCODINGS.get(source.dim) != model.encoding:
            raise ModelError(
                f"--model {name} needs the encoding {model.encoding}, but {source.name} gives "
                f"{source.dim:,} numbers per residue"
            )
        features = ResidueFeatures(source, WINDOW)
        model = replace(model, sha256=f"{model.sha256} {source.sha256}")
    if threshold is None:
        rule = RegionRule(model.threshold, min_consecutive, min_rcl_length)
    if model.encoding in RESIDUE_ENCODINGS:
        features = None
    label = _label(name, path, model.sha256)
    return NetworkFinder(label, model, rule, batch_size=batch_size, features=features)


def _label(name: str, path: Path, sha256: str) -> str:
    """Return the name of a shipped model, or a file name and the beginning of its SHA-256."""
    if name in shipped_models():
        return name
    return f"{re.sub(r'[^!-~]', '_', path.name)}:{sha256[:8]}"
