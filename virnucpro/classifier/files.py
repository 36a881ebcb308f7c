"""The classifier, merged embeddings to two scores; its files: what they say, read and written;
and whether it belongs to its encoders and a chunk length.

Two formats are read. The project's own is safetensors, with one JSON text under the key
``virnucpro`` of its metadata::

    {"schema": 1, "input_width": 3328, "hidden": 512, "batch_norm_eps": 1e-05,
     "labels": ["others", "virus"], "encoders": ["dnabert-s", "esm2_t36_3B_UR50D"],
     "chunk_lengths": [500], "extra": {...}, "temperature": 1.7}

``temperature`` is there where the scores were calibrated. ``contigs`` may be there too: the
numbers of a :class:`virnucpro.classifier.contigs.ContigModel`, all or the first five, for each
chunk length::

    "contigs": {"500": [0.1, 0.9, 0.3, -0.1, 0.05]}

The original's ``.pth`` is a whole pickled module of class ``__main__.MLPClassifier``. It is taken
apart without running what is pickled: every class in it becomes an inert holder of attributes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from msgspec import Meta, Struct, to_builtins
from msgspec.structs import asdict
from safetensors.torch import save
from torch import nn

from virnucpro.classifier.contigs import ContigModel
from virnucpro.compute.threads import one_thread
from virnucpro.encoders.family import EncoderSource, refuse_changed_models
from virnucpro.encoders.registry import digest_of, family_named, family_names
from virnucpro.encoders.weights import (
    as_type,
    load_weights,
    read_metadata,
    read_pickle,
    read_safetensors,
)
from virnucpro.errors import ModelError
from virnucpro.models.store import check_file
from virnucpro.settings import Bases, trained
from virnucpro.store.hashed import HashedFile, hashed

LABELS = ("others", "virus")  # class 0 and 1 of the released classifiers
INNER_BATCH = 256  # rows of every matrix product, whatever the caller passes


class Classifier(nn.Module):
    """Linear, batch normalisation, ReLU, (dropout, in training only), linear, softmax.

    ``input_width`` numbers per row, ``hidden`` units; the layers are named as in the original. The
    logits are divided by ``temperature`` before the softmax (Guo et al. 2017, arXiv:1706.04599).
    """

    def __init__(self, input_width: int, hidden: int, eps: float, temperature: float) -> None:
        super().__init__()
        self.input_width, self.hidden, self._temperature = input_width, hidden, temperature
        self.hidden_layer = nn.Linear(input_width, hidden)
        self.bn1 = nn.BatchNorm1d(hidden, eps)
        self.output_layer = nn.Linear(hidden, len(LABELS))

    def scores(self, features: torch.Tensor, *, softmax: bool = True) -> torch.Tensor:
        """float32 ``[n, input_width]`` to float32 ``[n, 2]``: others, virus; a row sums to 1.

        Rows go through in batches of ``INNER_BATCH``, the last one filled up with zeros, on one
        thread (see ``compute.threads``). So a row's score depends on nothing but the row and its
        place in such a batch: calls with multiples of ``INNER_BATCH`` rows give the same bits,
        however many.

        Without ``softmax`` and temperature they are the logits that a temperature is fitted on.

        Raises:
            ValueError: the rows have another width.
        """
        if features.ndim != 2 or features.shape[1] != self.input_width:
            raise ValueError(f"features {tuple(features.shape)}, expected [n, {self.input_width}]")
        out = torch.empty(len(features), 2)
        with torch.inference_mode(), one_thread():
            for start in range(0, len(features), INNER_BATCH):
                rows = features[start : start + INNER_BATCH].float()
                x = F.pad(rows, (0, 0, 0, INNER_BATCH - len(rows)))
                logits = self.output_layer(F.relu(self.bn1(self.hidden_layer(x))))
                if softmax:  # a division by 1.0 changes no bit
                    logits = (logits / self._temperature).softmax(dim=1)
                out[start : start + len(rows)] = logits[: len(rows)]
        return out


_KEY = "virnucpro"  # one text: safetensors does not keep the order of several
_EPS = 1e-5  # torch's default for BatchNorm1d
_PICKLED = (
    "__main__.MLPClassifier",
    "torch.nn.modules.linear.Linear",
    "torch.nn.modules.batchnorm.BatchNorm1d",
    "torch.nn.modules.dropout.Dropout",
)


_Positive = Annotated[float, Meta(ge=1e-30, le=1e30)]  # float32 holds it, and its inverse


class ClassifierMetadata(Struct, kw_only=True):
    """What a file says of itself; older ones say less.

    Attributes:
        schema: the format of the file.
        batch_norm_eps: what the batch normalisation adds to variances.
        labels: class names, in the order of the scores.
        encoders: families (``esm2``) or models (``esm2_t36_3B_UR50D``) it was trained with.
        chunk_lengths: bases of the chunks it was trained with.
        temperature: what its logits are divided by; None where it does not say: such scores are
            not calibrated.
        contigs: how the chunks of a contig are put together, by chunk length.
        extra: whatever its maker wrote down, such as the training command.
    """

    schema: Literal[1] = 1
    batch_norm_eps: _Positive = _EPS
    labels: tuple[str, ...] = ()
    encoders: tuple[str, ...] = ()
    chunk_lengths: tuple[Bases, ...] = ()
    temperature: _Positive | None = None
    contigs: dict[int, ContigModel] = {}
    extra: dict[str, str] = {}


class ClassifierInfo(ClassifierMetadata, kw_only=True):
    """What a classifier file says of itself; an empty tuple where it does not say.

    Attributes:
        file: the file as it was hashed.
        model: the classifier itself, in evaluation mode.
    """

    file: HashedFile
    model: Classifier


def inspect_classifier(path: Path) -> ClassifierInfo:
    """Read a classifier of either format.

    Raises:
        ModelError: missing, damaged, refused, or no classifier.
    """
    check_file(path)
    file = hashed(path)
    state, said = _read(path)
    refuse_changed_models(file)
    model = build_classifier(state, said, path)
    return ClassifierInfo(**asdict(said), file=file, model=model)


def classifier_to_bytes(state: Mapping[str, torch.Tensor], **said: Any) -> bytes:
    """Return a classifier in the project's own format; the same arguments give the same bytes.

    ``said`` are fields of :class:`ClassifierMetadata`.

    Raises:
        ModelError: ``state`` is not that of a classifier, or a field has an impossible value.
    """
    metadata = to_builtins(ClassifierMetadata(**{"labels": LABELS, **said}), str_keys=True)
    place = Path("classifier")
    model = build_classifier(state, as_type(metadata, ClassifierMetadata, place), place)
    metadata |= {"input_width": model.input_width, "hidden": model.hidden}
    for name in ("temperature", "contigs"):
        if not metadata[name]:
            del metadata[name]
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    del tensors["bn1.num_batches_tracked"]
    return save(tensors, {_KEY: json.dumps(metadata, sort_keys=True)})


def _read(path: Path) -> tuple[dict[str, torch.Tensor], ClassifierMetadata]:
    """Read its tensors, and what it says of itself."""
    if path.suffix == ".safetensors":
        metadata = read_metadata(path, _KEY)
        return read_safetensors(path), as_type(metadata, ClassifierMetadata, path)
    # A pickled module becomes its attributes, without any behaviour.
    module = read_pickle(path, [(SimpleNamespace, name) for name in _PICKLED])
    if not isinstance(module, SimpleNamespace):
        raise ModelError(f"{path} is not a classifier: neither .safetensors nor MLPClassifier")
    norm = _held(module, "_modules").get("bn1")
    metadata = {"batch_norm_eps": getattr(norm, "eps", _EPS)}
    return dict(_tensors(module, "")), as_type(metadata, ClassifierMetadata, path)


def _tensors(module: SimpleNamespace, prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield parameters and buffers of a module that was taken apart, by dotted name."""
    for name, value in {**_held(module, "_parameters"), **_held(module, "_buffers")}.items():
        if isinstance(value, torch.Tensor):
            yield prefix + name, value.detach()
    for name, inner in _held(module, "_modules").items():
        if isinstance(inner, SimpleNamespace):
            yield from _tensors(inner, f"{prefix}{name}.")


def _held(module: SimpleNamespace, group: str) -> dict[str, Any]:
    held = vars(module).get(group)
    return dict(held) if isinstance(held, dict) else {}


def build_classifier(
    state: Mapping[str, torch.Tensor], said: ClassifierMetadata, place: Path
) -> Classifier:
    """Make a classifier from its weights, all checked."""
    if (said.labels or LABELS) != LABELS:
        raise ModelError(f"{place}: classes {list(said.labels)}, expected {list(LABELS)}")
    first = state.get("hidden_layer.weight")
    hidden, width = first.shape if first is not None and first.ndim == 2 else (0, 0)
    with torch.device("meta"):
        model = Classifier(width, hidden, said.batch_norm_eps, said.temperature or 1.0)
    load_weights(model, state, place)
    return model


# --- whether it belongs to encoders and a chunk length


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
