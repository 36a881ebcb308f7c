"""Which models there are, and what each of them says about proteins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from virnucpro.contracts import Device
from virnucpro.encoders.registry import locate
from virnucpro.errors import DeviceError, ModelError
from virnucpro.rcl.features import Esm2Features
from virnucpro.rcl.models import (
    ENCODING_OF_WIDTH,
    MASKED,
    RELEASED_ESM2,
    WINDOW,
    RclModel,
    read_rcl_model,
)
from virnucpro.rcl.profile import PROFILE_SUFFIX, RclProfile, read_profile
from virnucpro.rcl.rule import RclResult, RegionRule, find_region

SHIPPED = Path(__file__).parents[1] / "data"
PREFIX = "rcl_"  # of the files of shipped models
DEFAULT_MODEL = "hmm"


class RclFinder(Protocol):
    """A model with its settings, ready to be used. Picklable until it is settled on a device.

    Attributes:
        label: what the tables call the model.
        encoding: what the names of result files say.
        sha256: of the model file.
        rule: when residues in a row are the RCL.
    """

    label: str
    encoding: str
    sha256: str
    rule: RegionRule

    def settle(self, device: Device) -> None:
        """Compute on ``device`` from now on."""

    def find(self, sequences: Sequence[str]) -> list[RclResult]:
        """Return what the model says about each protein; none of them is empty."""


@dataclass
class NetworkFinder:
    """A network, and the rule that makes regions of its probabilities.

    ``features`` and ``batch_size`` are those of :meth:`RclModel.probabilities`.
    """

    label: str
    model: RclModel
    rule: RegionRule
    sha256: str
    encoding: str
    batch_size: int | None = None
    features: Esm2Features | None = None

    def settle(self, device: Device) -> None:
        """Compute on ``device`` from now on, and have it compute the features, if it needs some."""
        if self.features is not None:
            self.features.settle(device)
        if device.kind == "cuda":
            self.model.network.to("cuda")
            # Results as on the CPU: TF32 changes probabilities in the third decimal place.
            torch.backends.cudnn.allow_tf32 = False
            torch.backends.cuda.matmul.allow_tf32 = False

    def find(self, sequences: Sequence[str]) -> list[RclResult]:
        """Return what the network says about each protein.

        For models of our own, small letters stand for amino acids, too. To models of RCL-identifier
        a small letter is an unknown residue.

        Raises:
            DeviceError: the device has too little memory.
        """
        if self.model.padding == MASKED:
            sequences = [sequence.upper() for sequence in sequences]
        try:
            rows = self.model.probabilities(
                sequences, batch_size=self.batch_size, features=self.features
            )
        except torch.OutOfMemoryError as error:
            raise DeviceError(
                "out of GPU memory: is another program using the GPU? Else use a smaller "
                "--batch-size"
            ) from error
        results = []
        for probabilities in rows:
            region = find_region(probabilities, self.rule)
            above = bool((probabilities > self.rule.threshold).any())
            status = "found" if region else "too_short" if above else "below_threshold"
            results.append(RclResult(status, region, probabilities))
        return results


@dataclass
class ProfileFinder:
    """A profile of serpins. Of ``rule`` only the shortest RCL counts: it has no threshold."""

    label: str
    profile: RclProfile
    rule: RegionRule
    sha256: str
    encoding: str = "hmm"

    def settle(self, device: Device) -> None:
        """Do nothing: a profile is compared on the CPU."""

    def find(self, sequences: Sequence[str]) -> list[RclResult]:
        """Return what the profile says about each protein."""
        return [
            RclResult("incomplete", None, result.probabilities * 0)
            if result.region and result.region.length < self.rule.min_rcl_length
            else result
            for result in self.profile.find(sequences)
        ]


def shipped_models() -> dict[str, Path]:
    """Return the models of the package by name."""
    files = sorted(SHIPPED.glob(f"{PREFIX}*"))
    return {path.stem.removeprefix(PREFIX): path for path in files}


def open_finder(
    name: str,
    *,
    threshold: float | None = None,
    min_consecutive: int = RegionRule.min_consecutive,
    min_rcl_length: int = RegionRule.min_rcl_length,
    batch_size: int | None = None,
    esm_model: str | None = None,
) -> RclFinder:
    """Open a model, by a shipped name or a path. It computes on the CPU until it is settled.

    A network with an ESM-2 encoding needs an ESM-2 model that computes the features:
    ``esm_model``, or the released one of that size if None. Others do without.

    Raises:
        ModelError: there is no such model, or it cannot be used.
    """
    shipped = shipped_models()
    path = shipped.get(name, Path(name))
    if not path.exists():
        raise ModelError(
            f"--model {name}: there is neither a shipped model of that name "
            f"({', '.join(shipped)}) nor such a file"
        )
    default = RegionRule.threshold if threshold is None else threshold
    rule = RegionRule(default, min_consecutive, min_rcl_length)
    if path.suffix == PROFILE_SUFFIX:
        profile = read_profile(path)
        return ProfileFinder(_label(name, path, profile.sha256), profile, rule, profile.sha256)
    model = read_rcl_model(path)
    if threshold is None:
        rule = replace(rule, threshold=model.threshold)
    label = _label(name, path, model.sha256)
    finder = NetworkFinder(label, model, rule, model.sha256, model.encoding, batch_size)
    if model.encoding in RELEASED_ESM2:
        source = locate(esm_model or RELEASED_ESM2[model.encoding][0], "protein")
        if ENCODING_OF_WIDTH.get(source.dim) != model.encoding:
            raise ModelError(
                f"--model {name} needs the encoding {model.encoding}, but {source.name} gives "
                f"{source.dim:,} numbers per residue"
            )
        finder.features = Esm2Features(source, WINDOW)
        finder.sha256 = f"{model.sha256} {source.sha256}"
    return finder


def _label(name: str, path: Path, sha256: str) -> str:
    """Return the name of a shipped model, or a file name and the beginning of its SHA-256."""
    if name in shipped_models():
        return name
    return f"{re.sub(r'[^!-~]', '_', path.name)}:{sha256[:8]}"
