"""The classifier: merged embeddings to a score for ``others`` and one for ``virus``.

Two formats are read. The project's own is safetensors, with one JSON text under the key
``virnucpro`` of its metadata::

    {"schema": 1, "input_width": 3328, "hidden": 512, "batch_norm_eps": 1e-05,
     "labels": ["others", "virus"], "encoders": ["dnabert-s", "esm2_t36_3B_UR50D"],
     "chunk_lengths": [500], "extra": {...}}

The original's ``.pth`` is a whole pickled module of class ``__main__.MLPClassifier``. It is taken
apart without running what is pickled: every class in it becomes an inert holder of attributes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from virnucpro.checkpoint.disk import sha256_of
from virnucpro.encoders.registry import EncoderSource
from virnucpro.encoders.weights import Weights, check_file, number, read_pickle, read_safetensors
from virnucpro.errors import ModelError

INNER_BATCH = 256  # rows of every matrix product, whatever the caller passes
LABELS = ("others", "virus")  # class 0 and 1 of the released classifiers
SCHEMA = 1
_KEY = "virnucpro"  # one text: safetensors does not keep the order of several
_EPS = 1e-5  # torch's default for BatchNorm1d
_PICKLED = (
    "__main__.MLPClassifier",
    "torch.nn.modules.linear.Linear",
    "torch.nn.modules.batchnorm.BatchNorm1d",
    "torch.nn.modules.dropout.Dropout",
)
_RELEASED_ESM = re.compile(r"esm2_t\d+_\w+_ur50d")


class _Inert:
    """What a pickled module becomes: its attributes, and no behaviour."""


@dataclass(frozen=True)
class ClassifierInfo:
    """What a classifier file says of itself; an empty tuple where it does not say.

    Attributes:
        input_width: width of a merged embedding, nucleotide part first.
        hidden: units of the hidden layer.
        labels: class names, in the order of the scores.
        encoders: families (``esm2``) or models (``esm2_t36_3B_UR50D``) it was trained with.
        chunk_lengths: bases of the chunks it was trained with.
    """

    path: Path
    sha256: str
    input_width: int
    hidden: int
    labels: tuple[str, ...]
    encoders: tuple[str, ...]
    chunk_lengths: tuple[int, ...]
    temperature: float | None = None


def inspect(path: Path) -> ClassifierInfo:
    """Read what the file says, and check that it can be used.

    Raises:
        ModelError: missing, damaged, refused, or no classifier.
    """
    weights, said = _read(path)
    model = _build(weights, said)
    labels, encoders, lengths = (
        tuple(said.get(name, ())) for name in ("labels", "encoders", "chunk_lengths")
    )
    size, lengths_and = (model.input_width, model.hidden), (lengths, said.get("temperature"))
    return ClassifierInfo(path, sha256_of(path), *size, labels, encoders, *lengths_and)


def load(path: Path) -> Classifier:
    """Read a classifier of either format, in evaluation mode.

    Raises:
        ModelError: missing, damaged, refused, or no classifier.
    """
    return _build(*_read(path))


class Classifier:
    """Linear, batch normalisation, ReLU, (dropout, in training only), linear, softmax.

    ``input_width`` numbers a row, ``hidden`` units; ``state`` holds ``hidden_layer``, ``bn1`` and
    ``output_layer`` as the original names them.
    """

    def __init__(self, state: Mapping[str, torch.Tensor], eps: float) -> None:
        self._state = {key: value.float() for key, value in state.items()}
        self._eps = eps
        self.hidden, self.input_width = self._state["hidden_layer.weight"].shape

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """float32 ``[n, input_width]`` to float32 ``[n, 2]``: others, virus; a row sums to 1.

        Rows go through in batches of ``INNER_BATCH``, the last one filled up with zeros. So a
        row's score depends on nothing but the row and its place in such a batch: calls with
        multiples of ``INNER_BATCH`` rows give the same bits, however many.

        Raises:
            ValueError: the rows have another width.
        """
        if features.ndim != 2 or features.shape[1] != self.input_width:
            raise ValueError(f"features {tuple(features.shape)}, expected [n, {self.input_width}]")
        out = torch.empty(len(features), 2)
        with torch.inference_mode():
            for start in range(0, len(features), INNER_BATCH):
                rows = features[start : start + INNER_BATCH].float()
                full = F.pad(rows, (0, 0, 0, INNER_BATCH - len(rows)))
                out[start : start + len(rows)] = self._forward(full)[: len(rows)]
        return out

    def _forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[n, in]`` to ``[n, 2]``."""
        s = self._state
        x = F.linear(x, s["hidden_layer.weight"], s["hidden_layer.bias"])  # [n, hidden]
        statistics = s["bn1.running_mean"], s["bn1.running_var"]
        x = F.batch_norm(x, *statistics, s["bn1.weight"], s["bn1.bias"], eps=self._eps)
        x = F.linear(F.relu(x), s["output_layer.weight"], s["output_layer.bias"])  # [n, 2]
        return x.softmax(dim=1)


def to_bytes(
    state: Mapping[str, torch.Tensor],
    *,
    labels: Sequence[str] = LABELS,
    encoders: Sequence[str],
    chunk_lengths: Sequence[int],
    extra: Mapping[str, str],
) -> bytes:
    """A classifier in the project's own format; the same arguments give the same bytes.

    ``encoders`` are families or model names, ``chunk_lengths`` bases; either may be empty where
    it is not to be checked. ``extra`` is anything worth keeping, such as the training command.

    Raises:
        ModelError: ``state`` is not that of a classifier, or ``labels`` are not ``LABELS``.
    """
    kept = {key: state[key].detach().cpu() for key in _shapes(1, 1) if key in state}
    said = {
        "schema": SCHEMA,
        "batch_norm_eps": _EPS,
        "labels": list(labels),
        "encoders": list(encoders),
        "chunk_lengths": [int(length) for length in chunk_lengths],
        "extra": dict(extra),
    }
    model = _build(_as_weights(kept, Path("classifier")), said)
    said |= {"input_width": model.input_width, "hidden": model.hidden}
    tensors = {key: value.float().contiguous() for key, value in kept.items()}
    return save(tensors, {_KEY: json.dumps(said, sort_keys=True)})


def check_fit(
    info: ClassifierInfo, *, nucleotide: EncoderSource, protein: EncoderSource, chunk_length: int
) -> list[str]:
    """See that a classifier belongs to two encoders and a chunk length.

    An entry of ``info.encoders`` fits an encoder of its family; where it names a model, and the
    encoder was asked for by the name of another released model, it does not. An encoder in a
    folder of the user's own naming gives a warning only: its width is all there is to compare.

    Returns:
        Warnings, for the user.

    Raises:
        ModelError: widths, encoders or the chunk length do not fit.
    """
    wanted = nucleotide.dim + protein.dim
    if info.input_width != wanted:
        raise ModelError(
            f"{info.path} takes {info.input_width} numbers a sequence, but {nucleotide.name} "
            f"({nucleotide.dim}) and {protein.name} ({protein.dim}) give {wanted}: choose the "
            f"classifier that was trained with these encoders"
        )
    warnings: list[str] = []
    if info.encoders:
        for source in (nucleotide, protein):
            warnings += _check_encoder(info, source)
    if info.chunk_lengths and chunk_length not in info.chunk_lengths:
        lengths = " or ".join(map(str, info.chunk_lengths))
        raise ModelError(
            f"{info.path} was trained for chunks of {lengths} bases, not {chunk_length}: use "
            f"--expected-length {info.chunk_lengths[0]} or another classifier"
        )
    named = re.match(r"(\d+)_model", info.path.name)  # 300_model.pth, 500_model.pth
    if named and not info.chunk_lengths and int(named[1]) != chunk_length:
        warnings.append(
            f"{info.path.name} is, by its name, for chunks of {named[1]} bases, but chunks are "
            f"{chunk_length}: scores may be far off"
        )
    return warnings


def _check_encoder(info: ClassifierInfo, source: EncoderSource) -> list[str]:
    """Compare one encoder with those that the classifier names."""
    named = [_short(entry) for entry in info.encoders if _family_of(entry) == source.family]
    asked = _short(source.name)
    error = ModelError(
        f"{info.path} was trained with {' and '.join(info.encoders)}, not with {source.name} "
        f"({source.family}): choose the classifier or the encoder accordingly"
    )
    if not named:
        raise error
    if {source.family, asked} & set(named):
        return []
    if _RELEASED_ESM.fullmatch(asked):
        raise error
    return [f"{info.path.name} was trained with {', '.join(named)}; {source.name} is taken for it"]


def _short(name: str) -> str:
    """The last component, lower case, without ``.pt``: names of one model in all its forms."""
    return re.sub(r"\.pt$", "", name.rstrip("/\\").replace("\\", "/").split("/")[-1].lower())


def _family_of(entry: str) -> str:
    """``facebook/esm2_t36_3B_UR50D`` is of family ``esm2``; a family is of itself."""
    short = _short(entry)
    if short.startswith("esm2"):
        return "esm2"
    return "dnabert-s" if short.startswith(("dnabert-s", "dnabert_s")) else short


def _read(path: Path) -> tuple[Weights, dict[str, Any]]:
    """Its tensors, and what it says of itself."""
    check_file(path)
    if path.suffix == ".safetensors":
        return _as_weights(read_safetensors(path), path), _metadata(path)
    module = read_pickle(path, [(_Inert, name) for name in _PICKLED])
    if not isinstance(module, _Inert):
        raise ModelError(
            f"{path} is no classifier: expected a .safetensors of virnucpro, or a pickled "
            f"MLPClassifier (300_model.pth, 500_model.pth)"
        )
    norm = _held(module, "_modules").get("bn1")
    said = {"batch_norm_eps": getattr(norm, "eps", _EPS)}
    return _as_weights(dict(_tensors(module, "")), path), said


def _tensors(module: _Inert, prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers of a module that was taken apart, by dotted name."""
    for group in ("_parameters", "_buffers"):
        for name, value in _held(module, group).items():
            if isinstance(value, torch.Tensor):
                yield prefix + name, value.detach()
    for name, inner in _held(module, "_modules").items():
        if isinstance(inner, _Inert):
            yield from _tensors(inner, f"{prefix}{name}.")


def _held(module: _Inert, group: str) -> dict[str, Any]:
    held = vars(module).get(group)
    return dict(held) if isinstance(held, dict) else {}


def _metadata(path: Path) -> dict[str, Any]:
    """What a file of ours says of itself."""
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(_KEY)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} cannot be read ({error}): fetch it again") from error
    said = None
    with suppress(ValueError):
        said = json.loads(text or "null")
    if not isinstance(said, dict) or not isinstance(said.get("schema"), int):
        raise ModelError(f"{path} is no classifier of virnucpro: it has no {_KEY!r} metadata")
    if said["schema"] > SCHEMA:
        raise ModelError(f"{path} was written by a newer virnucpro: update this one")
    for name, kind in (("labels", str), ("encoders", str), ("chunk_lengths", int)):
        entries = said.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(e, kind) for e in entries):
            raise ModelError(f"{path}: {name!r} in its metadata is damaged: fetch it again")
    return said


def _build(weights: Weights, said: Mapping[str, Any]) -> Classifier:
    """A classifier from its weights, all checked."""
    if tuple(said.get("labels") or LABELS) != LABELS:
        raise ModelError(f"{weights.place}: classes {said['labels']}, expected {list(LABELS)}")
    first = weights.tensors.get("hidden_layer.weight")
    hidden, width = first.shape if first is not None and first.ndim == 2 else (0, 0)
    state = {key: weights.take(key, shape) for key, shape in _shapes(hidden, width).items()}
    for key, value in state.items():
        if not bool(torch.isfinite(value).all()):
            raise ModelError(f"{weights.place}: NaN or infinite values in {key}: fetch it again")
    return Classifier(state, number(said, "batch_norm_eps", weights.place))


def _shapes(hidden: int, width: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "hidden_layer.weight": (hidden, width),
        "hidden_layer.bias": (hidden,),
        "output_layer.weight": (2, hidden),
        "output_layer.bias": (2,),
    }
    norm = ("weight", "bias", "running_mean", "running_var")
    return shapes | {f"bn1.{name}": (hidden,) for name in norm}


def _as_weights(tensors: dict[str, torch.Tensor], path: Path) -> Weights:
    return Weights(tensors, dict.fromkeys(tensors, path), path)
