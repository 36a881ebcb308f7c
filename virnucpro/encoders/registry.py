"""Which encoders there are, where a name's weights lie, and how to open them.

An encoder is one module, or an object in one, with ``recognises``, ``files``, ``width`` and
``open_encoder`` (:class:`Family` says what each means) and one line in ``FAMILIES``. The command
line imports this module: torch comes with the modules of the families, inside functions.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, cast

from virnucpro.contracts import Encoder
from virnucpro.errors import ModelError, UsageError
from virnucpro.models.store import check_digest, find
from virnucpro.store.disk import sha256_of

Molecule = Literal["nucleotide", "protein"]
TOY = "toy"
LITE = "lite"  # the pair of small encoders that the package ships
SHIPPED = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class EncoderSource:
    """An encoder that was found on this machine; what a stage holds and a worker opens.

    Attributes:
        family: a key of ``FAMILIES``, ``toy-nucleotide`` or ``toy-protein``.
        name: what the user asked for.
        path: weights file or model folder; None for a toy.
        files: every file whose content decides the result, in a fixed order.
        sha256: one digest over their contents, whatever they are called.
        dim: width of an embedding.
    """

    family: str
    name: str
    path: Path | None
    files: tuple[Path, ...]
    sha256: str
    dim: int


class Family(Protocol):
    """What an entry of ``FAMILIES`` offers."""

    def recognises(self, path: Path) -> bool:
        """Whether ``path``, an existing file or a folder with ``config.json``, is of this kind."""
        ...

    def files(self, path: Path) -> tuple[Path, ...]:
        """The files whose content decides the result. Raises ModelError for a missing one."""
        ...

    def width(self, path: Path) -> int:
        """Width of an embedding, read without the weights. Raises ModelError."""
        ...

    def open_encoder(
        self,
        source: EncoderSource,
        device: str,
        precision: str,
        *,
        budget: int | None,
        truncation: int,
    ) -> Encoder:
        """Load the weights onto the device. Raises ModelError."""
        ...


FAMILIES: dict[str, tuple[Molecule, str]] = {
    # Asked in this order: to ESM-2, any single file is one of its checkpoints.
    "lite-nucleotide": ("nucleotide", "virnucpro.encoders.lite:NUCLEOTIDE"),
    "lite-protein": ("protein", "virnucpro.encoders.lite:PROTEIN"),
    "dnabert-s": ("nucleotide", "virnucpro.encoders.dnabert_s"),
    "esm2": ("protein", "virnucpro.encoders.esm2"),
}


def locate(name: str, role: Molecule) -> EncoderSource:
    """Find the encoder ``name`` on this machine and identify it by its content.

    ``name`` is a file or folder, a released or hub name, ``lite`` or ``toy``; a path that exists is
    taken before a released name. Every file is read once for its digest.

    Raises:
        ModelError: not here (the message has the command that fetches it), damaged, of an unknown
            kind, not for ``role``, or other than what was recorded when it was fetched.
    """
    if name == TOY:
        return _toy(role)
    path = SHIPPED / f"lite_{role}.safetensors" if name == LITE else Path(name).expanduser()
    path = path.absolute() if path.exists() else _by_name(name)
    family = _family(path)
    needed, _ = FAMILIES[family]
    if needed != role:
        raise ModelError(f"{path} is a {needed} model ({family}), but a {role} model is needed")
    module = _module(family)
    files = module.files(path)
    _check(files)
    width = module.width(path)
    digests = [sha256_of(file) for file in files]
    for file, digest in zip(files, digests, strict=True):
        check_digest(file, digest)
    return EncoderSource(family, name, path, files, digest_of(digests), width)


def check_precision(precision: str, *sources: EncoderSource) -> None:
    """Refuse, before anything is computed, a precision that one of the encoders does not have.

    Raises:
        UsageError: fp8 for an encoder of ``lite``, which would gain nothing from it.
    """
    for source in sources:
        if precision == "fp8" and source.family.startswith(LITE):
            raise UsageError(f"{source.name} cannot be computed in fp8: use --precision bf16")


def digest_of(digests: Sequence[str]) -> str:
    """What identifies an encoder whose files have these SHA-256 (hex), in their order."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def open_encoder(
    source: EncoderSource, device: str, precision: str, *, budget: int | None, truncation: int
) -> Encoder:
    """Load ``source`` onto ``device`` (``cpu``, ``cuda`` or ``cuda:N``).

    ``budget`` bounds a batch: tokens for ESM-2, sequences for DNABERT-S; None chooses for the
    device. ``truncation`` is how many residues of a protein count; nucleotides are not cut.

    Raises:
        ModelError: the weights are missing, damaged, or do not fit their configuration.
    """
    if source.path is None:
        from virnucpro.encoders.toy import ToyEncoder

        if source.family == "toy-protein":
            return ToyEncoder("protein", truncation)
        return ToyEncoder("nucleotide", None)
    return _module(source.family).open_encoder(
        source, device, precision, budget=budget, truncation=truncation
    )


def _by_name(name: str) -> Path:
    if Path(name).is_absolute() or Path(name).suffix in {".pt", ".bin", ".safetensors"}:
        raise ModelError(
            f"model {name} is not there: check features.*.model_name, or name a model that "
            f"virnucpro models list shows"
        )
    return find(name)


def _module(family: str) -> Family:
    module, _, name = FAMILIES[family][1].partition(":")
    found = importlib.import_module(module)
    return cast(Family, getattr(found, name) if name else found)


def _family(path: Path) -> str:
    """Which kind of model lies at ``path``."""
    from virnucpro.encoders.weights import check_file, read_json

    beside = path.parent / "config.json"
    if path.is_file() and path.suffix in {".bin", ".safetensors", ".json"} and beside.exists():
        raise ModelError(f"{path} is one file of a model: name its folder, {path.parent}")
    if path.is_dir():
        check_file(path / "config.json")
    for family in FAMILIES:
        if _module(family).recognises(path):
            return family
    if path.is_file():
        raise ModelError(f"{path} is no encoder, or it is damaged: get it again, or train it again")
    kind = read_json(path / "config.json").get("model_type")
    raise ModelError(
        f"{path / 'config.json'} describes a model of type {kind!r}, not one of those supported: "
        f"{', '.join(FAMILIES)}"
    )


def _check(files: tuple[Path, ...]) -> None:
    from virnucpro.encoders.weights import check_file

    for file in files:
        check_file(file)


def _toy(role: Molecule) -> EncoderSource:
    from virnucpro.encoders.toy import DIM, digest

    return EncoderSource(f"toy-{role}", TOY, None, (), digest(role), DIM)
