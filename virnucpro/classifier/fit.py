"""Whether a classifier belongs to its encoders and a chunk length."""

from __future__ import annotations

import re
from collections.abc import Sequence

from virnucpro.classifier.files import ClassifierInfo
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import digest_of, family_named, family_names
from virnucpro.errors import ModelError
from virnucpro.settings import trained


def check_fit(
    info: ClassifierInfo, sources: Sequence[EncoderSource], chunk_length: int
) -> list[str]:
    """Check that a classifier belongs to its encoders and a chunk length.

    An entry of ``info.encoders`` fits an encoder of its family; where it names a model, and the
    encoder was asked for by the name of another released model, it does not. An encoder in a
    folder with any other name gives a warning only: nothing but its width can be compared.

    Returns:
        Warnings, for the user.

    Raises:
        ModelError: widths, encoders or the chunk length do not fit.
    """
    width = sum(source.dim for source in sources)
    if info.model.input_width != width:
        raise ModelError(
            f"{info.file.path} takes {info.model.input_width} numbers per sequence, not {width}: "
            f"choose the classifier that was trained with these encoders"
        )
    warnings: list[str] = []
    if info.encoders:
        known = {digest_of([digest]) for digest in info.extra.get("encoder_sha256", "").split()}
        for source in sources:
            warnings += _check_encoder(info, source)
            if known and source.sha256 not in known:  # the same width would give wrong scores
                raise ModelError(f"{source.path} is not the encoder of {info.file.path}")
    lengths = info.chunk_lengths
    if lengths and trained(chunk_length, lengths) not in lengths:
        said = " or ".join(map(str, lengths))
        raise ModelError(f"{info.file.path} is for chunks of {said} bases, not {chunk_length}")
    named = re.match(r"(\d+)_model", info.file.path.name)  # 300_model.pth, 500_model.pth
    if named and not lengths and int(named[1]) != chunk_length:
        warnings.append(f"{info.file.path.name} is, by its name, for chunks of {named[1]} bases")
    return warnings


def _check_encoder(info: ClassifierInfo, source: EncoderSource) -> list[str]:
    """Compare one encoder with those that the classifier names, and return warnings."""
    named, known = [], family_names()
    for entry in map(_short, info.encoders):  # facebook/esm2_t36_3B_UR50D is of the family esm2
        families = [name for name in known if entry.replace("_", "-").startswith(name)]
        if max(families, key=len, default=entry) == source.family:
            named.append(entry)
    asked = _short(source.name)
    error = ModelError(f"{info.file.path} is for {' and '.join(info.encoders)}, not {source.name}")
    if not named:
        raise error
    if {source.family, asked} & set(named):
        return []
    released = [_short(name) for name in family_named(source.family).released]
    if len(released) > 1 and asked in released:  # its name tells it from the others
        raise error
    return [
        f"{info.file.path.name} was trained with {', '.join(named)}; {source.name} is taken for it"
    ]


def _short(name: str) -> str:
    """The last component, lower case, without ``.pt``: names of one model in all its forms."""
    return re.sub(r"\.pt$", "", name.rstrip("/\\").replace("\\", "/").split("/")[-1].lower())


def entry_of(name: str, family: str) -> str:
    """Return how a classifier file names an encoder: by its release, or else by its family."""
    short = name.rstrip("/").split("/")[-1].removesuffix(".pt")
    return short if short in family_named(family).released else family
