"""Which encoder families there are, where a named encoder is, and how to open it.

The command line imports this module, so torch is imported only when a family is: families are
declared as ``module:object`` and imported when one of them is needed.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from virnucpro.contracts import Encoder, Molecule
from virnucpro.encoders.family import (
    EncoderFamily,
    EncoderSource,
    OpenOptions,
    refuse_changed_models,
)
from virnucpro.errors import ModelError
from virnucpro.models.store import check_digest, check_file, find_model
from virnucpro.store.hashed import hashed

ENTRY_POINTS = "virnucpro.encoders"  # the group in which other packages register families
BUILT_IN: Mapping[str, str] = {
    "lite": "virnucpro.encoders.lite:LITE",
    "dnabert-s": "virnucpro.encoders.dnabert_s:FAMILY",
    "esm2": "virnucpro.encoders.esm2:FAMILY",
    "toy-nucleotide": "virnucpro.encoders.toy:NUCLEOTIDE",
    "toy-protein": "virnucpro.encoders.toy:PROTEIN",
}


@cache
def family_names() -> tuple[str, ...]:
    """Return the names of all families, those of other packages last; none is imported.

    To look for those takes 14 ms, and a run would look six times.
    """
    return tuple(
        dict.fromkeys([*BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINTS))])
    )


def family_named(name: str) -> EncoderFamily:
    """Return the family ``name``, imported when it is first asked for; ModelError for a bad one."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        family: EncoderFamily = getattr(importlib.import_module(module), attribute)
        return family
    points = list(entry_points(group=ENTRY_POINTS, name=name))
    if len(points) != 1:
        found = " and ".join(point.value for point in points) or "no package"
        raise ModelError(f"{found} registers {name!r}; known are {', '.join(family_names())}")
    try:
        family = points[0].load()
        if not isinstance(family, EncoderFamily) or family.name != name:
            raise TypeError("it is not an EncoderFamily of that name")
    except Exception as error:  # whatever goes wrong there is that package's error
        raise ModelError(f"{points[0].value} ({name}) cannot be imported: {error!r}") from error
    return family


def locate(name: str, molecule: Molecule) -> EncoderSource:
    """Find the encoder ``name`` on this machine and identify it by its content.

    ``name`` is a family whose models come with it (``lite``, ``toy``, or one of another package), a
    file or folder, or a released or hub name; a path that exists is taken before a released name.
    Every file is read once for its digest.

    Raises:
        ModelError: it is not here (the message has the command that fetches it), damaged, of an
            unknown kind, not for ``molecule``, or other than was recorded when it was fetched.
    """
    path = None
    for known in (f"{name}-{molecule}", name):
        if known in family_names():
            family = family_named(known)
            path = family.packaged
            if path is not None or not family.has_weights:
                break
    else:
        path = _path_of(name)
        if path.is_dir():
            check_file(path / "config.json")
        families = (each for each in map(family_named, family_names()) if each.recognises(path))
        recognised = next(families, None)
        if recognised is None:
            raise ModelError(f"{path} is not an encoder of a known kind, or it is damaged")
        family = recognised
    if family.molecule != molecule:
        raise ModelError(f"{path or name} is a {family.molecule} model, not a {molecule} model")
    paths = family.files(path) if path else ()
    for file in paths:
        check_file(file)
    files = tuple(map(hashed, paths))
    for found in files:
        check_digest(found.path, found.sha256)
    digests = [found.sha256 for found in files] or [f"{family.name} {family.version}"]
    width = family.width
    if not isinstance(width, int):
        assert path is not None
        width = width(path)
    return EncoderSource(family.name, name, path, files, digest_of(digests), width, family.reading)


def digest_of(digests: Sequence[str]) -> str:
    """Return what identifies an encoder whose files have these SHA-256 (hex), in their order."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def check_on_disk(name: str, molecule: Molecule) -> None:
    """Check that a model is on this machine, without importing what computes with it.

    Raises:
        ModelError: it is not (the message has the command that fetches it).
    """
    if not {f"{name}-{molecule}", name} & set(family_names()):
        _path_of(name)


def _path_of(name: str) -> Path:
    path = Path(name).expanduser()
    if path.exists():
        return path.absolute()
    if path.is_absolute() or path.suffix in {".pt", ".bin", ".safetensors"}:
        raise ModelError(f"{name} is not there: check its path, or see virnucpro models list")
    return find_model(name)


def open_encoder(
    source: EncoderSource, device: str, precision: str, *, budget: int | None, truncation: int
) -> Encoder:
    """Load ``source`` onto ``device`` (``cpu``, ``cuda`` or ``cuda:N``).

    ``budget`` limits a batch, in the unit of the family; None chooses for the device.
    ``truncation`` is how many residues of a protein count; nucleotides are not cut.

    Raises:
        ModelError: the weights are missing, damaged, or do not fit their configuration.
    """
    options = OpenOptions(device, precision, budget, truncation)
    encoder = family_named(source.family).open(source, options)
    refuse_changed_models(*source.files)
    return encoder
