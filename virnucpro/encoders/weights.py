"""Weights from disk onto a device, without running anything that is pickled in them.

Read are: one ``.pt`` file, and folders with ``config.json`` and ``model.safetensors`` or
``pytorch_model.bin``, whole or in shards with an index. Every failure is a
:class:`~virnucpro.errors.ModelError` that names the file and what to do about it.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
from msgspec import Meta, Struct, ValidationError, convert, field
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn

from virnucpro.compute.compiled import Network
from virnucpro.contracts import Json
from virnucpro.errors import ModelError
from virnucpro.models.store import check_file, shards_of
from virnucpro.store.documents import parse_json
from virnucpro.store.features import UNREADABLE, warnings_of_torch

_AGAIN = "it is damaged or incomplete: fetch it again"
CPU = torch.device("cpu")
_WHOLE = ("model.safetensors", "pytorch_model.bin")


def renamed(tensors: Mapping[str, torch.Tensor], pattern: str) -> dict[str, torch.Tensor]:
    """Return tensors without what ``pattern`` matches at the start of their names.

    Parameters of layer norms become ``weight`` and ``bias``: they were once stored as ``gamma`` and
    ``beta``, and transformers 5 does it again.
    """
    found = {}
    for key, value in tensors.items():
        name = re.sub(f"^({pattern})", "", key)
        found[re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))] = value
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises ModelError where there is none."""
    check_file(path)
    try:
        return as_type(parse_json(path.read_bytes()), dict[str, Any], path)
    except ValueError as error:
        raise ModelError(f"{path} is not JSON ({error}): {_AGAIN}") from error


Count = Annotated[int, Meta(ge=1)]
Layers = Annotated[int, Meta(ge=1, le=1000)]  # the largest ESM-2 has 48; ten million take minutes
Epsilon = Annotated[float, Meta(gt=0)]
Kind = TypeVar("Kind")
Tensors = dict[str, torch.Tensor]


class TransformerSizes(Struct, frozen=True):
    """What a transformer is built from. ``eps`` is that of its layer norms."""

    layers: Layers = field(name="num_hidden_layers")
    width: Count = field(name="hidden_size")
    heads: Count = field(name="num_attention_heads")
    feed_forward: Count = field(name="intermediate_size")
    eps: Epsilon = field(name="layer_norm_eps")


def as_type(content: Json, kind: type[Kind], path: Path) -> Kind:
    """Return what a file says as ``kind``. Raises ModelError for a missing or impossible value."""
    try:
        return convert(content, kind, str_keys=True, from_attributes=True)
    except (ValidationError, AttributeError) as error:  # the second of a lone tensor
        text = f"{path}: {error}: {_AGAIN}, or it is another kind of file, or of a newer version"
        raise ModelError(text) from error


def read_sizes(folder: Path, sizes: type[Kind]) -> Kind:
    """Return the sizes in the ``config.json`` of a folder; raises as :func:`as_type`."""
    path = folder / "config.json"
    return as_type(read_json(path), sizes, path)


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
        raise ModelError(f"{path} cannot be read, or is refused: {code}{_AGAIN}") from error


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
        ModelError: there are none.
    """
    for name in _WHOLE:
        if (folder / name).exists():
            return (folder / name,)
        index = folder / f"{name}.index.json"
        if index.exists():
            # Only the last component: an index must not point out of its folder.
            return tuple(folder / Path(name).name for name in shards_of(index))
    raise ModelError(f"{folder} has no weights: expected {' or '.join(_WHOLE)}, or their shards")


def read_folder(folder: Path) -> dict[str, torch.Tensor]:
    """Read all tensors in ``folder``. Raises ModelError as the readers of its files do."""
    tensors: dict[str, torch.Tensor] = {}
    for path in weight_files(folder):
        content = read_safetensors(path) if path.suffix == ".safetensors" else read_pickle(path)
        tensors |= as_type(content, Tensors, path)
    return tensors


def stored_names(network: Network, modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the stored names of each parameter of a network: several stand below one another.

    ``modules`` has the stored names of our modules, between blanks, with ``{i}`` for the number of
    the layer. There is one layer more than in the network: no file that belongs to it has that one.
    """
    own, layers = list(network.state_dict()), len(network.blocks)
    own += [name.replace(".0.", f".{layers}.") for name in own if name.startswith("blocks.0.")]
    names = {}
    for name in own:
        *outer, module, kind = name.split(".")
        layer = outer[-1] if outer else ""
        names[name] = [f"{key.format(i=layer)}.{kind}" for key in modules[module].split()]
    return names


class Embedding(nn.Embedding):
    """A table of vectors, of which none are drawn on the meta device, because they are read.

    To draw them there, torch would import its compiler, which takes more than a second.
    """

    def reset_parameters(self) -> None:
        """Draw the vectors, where there are any."""
        if not self.weight.is_meta:
            super().reset_parameters()


def load_weights(
    network: nn.Module,
    tensors: Mapping[str, torch.Tensor],
    place: Path,
    names: Mapping[str, Sequence[str]] | None = None,
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Put the weights of the file or folder ``place`` into a network on the meta device.

    ``names`` are their :func:`stored_names`, where they are not those of the network.

    Raises:
        ModelError: a name is missing or unknown, a shape differs, or a value is not finite in
            ``dtype``, or a negative variance.
    """
    state: dict[str, torch.Tensor] = {}
    for name, keys in (names or {name: (name,) for name in tensors}).items():
        # Converted on the device, which is faster than the host, and one after the other,
        # because the device holds both for a moment.
        parts = [tensors[key].to(device).to(dtype) for key in keys if key in tensors]
        if len({part.shape[1:] for part in parts}) == 1:  # else it is reported as missing
            state[name] = parts[0] if len(parts) == 1 else torch.cat(parts)
    try:
        network.load_state_dict(state, assign=True)
    except RuntimeError as error:  # about names and shapes; those of a device arise above
        reason = " ".join(str(error).split())[:500]
        raise ModelError(f"{place}: {reason}: {_AGAIN}, or it is another model") from error
    for name, value in state.items():
        if not value.isfinite().all() or (name.endswith("_var") and (value < 0).any()):
            raise ModelError(f"{place}: NaN or infinite values in {name}: {_AGAIN}")
    network.requires_grad_(False).eval()
