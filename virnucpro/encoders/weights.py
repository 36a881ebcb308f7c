"""Weights from disk onto a device, without running anything that is pickled in them.

Read are: one ``.pt`` file, and folders with ``config.json`` and ``model.safetensors`` or
``pytorch_model.bin``, whole or in shards with an index. Every failure is a
:class:`~virnucpro.errors.ModelError` that names the file and what to do about it.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
from msgspec import Meta, Struct, ValidationError, convert, field
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn

from virnucpro.contracts import Json
from virnucpro.errors import ModelError
from virnucpro.models.store import check_file
from virnucpro.store.documents import parse_json
from virnucpro.store.features import UNREADABLE, warnings_of_torch

_AGAIN = "it is damaged or incomplete: fetch it again"
_WHOLE = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Weights:
    """Tensors by name, as stored, and the file or folder that the user named."""

    tensors: dict[str, torch.Tensor]
    place: Path

    def take(self, key: str, shape: Sequence[int]) -> torch.Tensor:
        """Return the tensor ``key``.

        Raises:
            ModelError: it is missing, or its shape is not ``shape``.
        """
        if key not in self.tensors:
            raise ModelError(f"{self.place} has no {key!r}: {_AGAIN}, or it is another model")
        tensor = self.tensors[key]
        if tuple(tensor.shape) != tuple(shape):
            raise ModelError(
                f"{self.place}: {key!r} has shape {tuple(tensor.shape)}, expected "
                f"{tuple(shape)}: the file does not belong to its configuration"
            )
        return tensor

    def renamed(self, pattern: str) -> Weights:
        """Return the weights without what ``pattern`` matches at the start of their names.

        Parameters of layer norms become ``weight`` and ``bias``: they were once stored as
        ``gamma`` and ``beta``, and transformers 5 does it again.
        """
        renamed = {}
        for key, value in self.tensors.items():
            name = re.sub(f"^({pattern})", "", key)
            name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
            renamed[name] = value
        return Weights(renamed, self.place)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises ModelError where there is none."""
    check_file(path)
    try:
        content = parse_json(path.read_bytes())
    except ValueError as error:
        raise ModelError(f"{path} is not JSON ({error}): {_AGAIN}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} is not a JSON object: {_AGAIN}")
    return content


Count = Annotated[int, Meta(ge=1)]
Layers = Annotated[int, Meta(ge=1, le=1000)]  # the largest ESM-2 has 48; ten million take minutes
Epsilon = Annotated[float, Meta(gt=0)]
Sizes = TypeVar("Sizes")


class TransformerSizes(Struct, frozen=True):
    """What a transformer is built from. ``eps`` is that of its layer norms."""

    layers: Layers = field(name="num_hidden_layers")
    width: Count = field(name="hidden_size")
    heads: Count = field(name="num_attention_heads")
    feed_forward: Count = field(name="intermediate_size")
    eps: Epsilon = field(name="layer_norm_eps")


def as_sizes(config: Json, sizes: type[Sizes], path: Path) -> Sizes:
    """Return the sizes in a configuration. Raises ModelError for a missing or impossible one."""
    try:
        return convert(config, sizes)
    except ValidationError as error:
        raise ModelError(f"{path}: {error}: {_AGAIN}") from error


def read_sizes(folder: Path, sizes: type[Sizes]) -> Sizes:
    """Return the sizes in the ``config.json`` of a folder; raises as :func:`as_sizes`."""
    path = folder / "config.json"
    return as_sizes(read_json(path), sizes, path)


def read_pickle(path: Path, allowed: Sequence[Any] = ()) -> Any:
    """Read a ``torch.save`` file, its tensors mapped from the disk where possible.

    ``allowed`` are classes, or pairs of a class and the name it stands for, that may occur
    beside plain tensors, numbers, text and collections.

    Raises:
        ModelError: the file cannot be read, or holds anything else; that is not run.
    """
    check_file(path)
    try:
        # It warns developers of the pickle. torch keeps the allowed classes for the whole process;
        # ``warnings_of_torch`` lets in one thread at a time.
        with warnings_of_torch("ignore"), torch.serialization.safe_globals(list(allowed)):
            return torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
            )
    except UNREADABLE as error:
        match = re.search(r"GLOBAL (\S+)", str(error))
        code = f"it asks for {match[1]}, which no model needs and was not run; " if match else ""
        raise ModelError(
            f"{path} cannot be read, or is refused: {code}{_AGAIN} from a source you trust"
        ) from error


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a safetensors file. Raises ModelError where it is not one."""
    check_file(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({error}): {_AGAIN}") from error


def read_metadata(path: Path, key: str) -> Json:
    """Return what a safetensors file says of itself under ``key``; None where it says nothing."""
    try:
        with safe_open(path, "pt") as file:
            return parse_json((file.metadata() or {}).get(key, "null"))
    except (SafetensorError, OSError, ValueError):
        return None


def weight_files(folder: Path) -> tuple[Path, ...]:
    """Return the weight files in ``folder``, shards in the order of their names.

    Safetensors are taken before pickles, and a whole file before shards.

    Raises:
        ModelError: there are none, or a shard that the index names is missing.
    """
    for name in _WHOLE:
        if (folder / name).exists():
            check_file(folder / name)
            return (folder / name,)
        index = folder / f"{name}.index.json"
        if index.exists():
            names = read_json(index).get("weight_map")
            if not isinstance(names, dict) or not names:
                raise ModelError(f"{index} has no 'weight_map': {_AGAIN}")
            # Only the last component: an index must not point out of its folder.
            shards = tuple(folder / Path(name).name for name in sorted({*map(str, names.values())}))
            for shard in shards:
                check_file(shard)
            return shards
    raise ModelError(f"{folder} has no weights: expected {' or '.join(_WHOLE)}, or their shards")


def read_folder(folder: Path) -> Weights:
    """Read all tensors in ``folder``. Raises ModelError as the readers of its files do."""
    tensors: dict[str, torch.Tensor] = {}
    for path in weight_files(folder):
        content = read_safetensors(path) if path.suffix == ".safetensors" else read_pickle(path)
        tensors |= tensors_of(content, path)
    return Weights(tensors, folder)


def tensors_of(content: Any, path: Path) -> dict[str, torch.Tensor]:
    """Return ``content`` as tensors by name. Raises ModelError where it is anything else."""
    if not isinstance(content, dict) or not all(
        isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in content.items()
    ):
        raise ModelError(f"{path} does not hold named weights: it is not a file of this model")
    return content


def moved(tensor: torch.Tensor, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """Return ``tensor`` on ``device``, and converted there: a GPU converts faster than the host.

    The device holds both for a moment, so one tensor is moved at a time.
    """
    return tensor.to(device).to(dtype)


def assign(
    module: nn.Module,
    sources: Mapping[str, Sequence[str]],
    weights: Weights,
    device: torch.device,
    dtype: torch.dtype,
) -> None:
    """Put ``weights`` into a module made on the meta device, cast once.

    ``sources`` gives the stored names of each parameter; several are put one below the other.

    Raises:
        ModelError: a name is missing, a shape differs, a value is not finite in ``dtype``, or a
            layer is stored that the module does not have.
    """
    known = {key for keys in sources.values() for key in keys}
    for key in weights.tensors:
        if key not in known and re.sub(r"\.\d+\.", ".0.", key) in known:
            raise ModelError(
                f"{weights.place}: {key!r} is of a layer that its configuration does not have: the "
                f"two do not belong together"
            )
    state: dict[str, torch.Tensor] = {}
    for name, empty in module.state_dict().items():
        keys = sources[name]
        shape = (empty.shape[0] // len(keys), *empty.shape[1:])
        parts = [moved(weights.take(key, shape), device, dtype) for key in keys]
        state[name] = parts[0] if len(parts) == 1 else torch.cat(parts)
    finite = torch.stack([torch.isfinite(value).all() for value in state.values()]).tolist()
    for name, good in zip(state, finite, strict=True):
        if not good:
            raise ModelError(
                f"{weights.place}: NaN or infinite values in "
                f"{', '.join(sources[name])} (as {str(dtype).removeprefix('torch.')}): {_AGAIN}"
            )
    module.load_state_dict(state, assign=True)
    module.requires_grad_(False)
    module.eval()
