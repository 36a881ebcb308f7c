"""The models that can be named: where each comes from and which of its files are needed."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch

from virnucpro.errors import ModelError

# README of https://github.com/facebookresearch/esm, table "Available models".
FAIR_ESM = "https://dl.fbaipublicfiles.com/fair-esm/models"
# Named by the paper as the place of code and models; its README runs `prediction.py ... 500
# 500_model.pth` in a fresh clone. HEAD is the default branch, whatever its name.
ORIGINAL = "https://github.com/Li-Jing-1997/VirNucPro"

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")

# In order of preference: safetensors cannot carry code, one file is simpler than several.
# The second column is what an index stands for.
WEIGHTS = (
    ("model.safetensors", None),
    ("model.safetensors.index.json", "model-*-of-*.safetensors"),
    ("pytorch_model.bin", None),
    ("pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin"),
)


@dataclass(frozen=True)
class WebFile:
    """One file at an address.

    Attributes:
        name: what users call it.
        what: a few words for the list.
        address: https address; its last part is the name of the file on disk.
        bytes: exact size, where it is known.
        twin: of a file that fair-esm knows, the hub model with the same weights, which is used
            where the file is not there.
    """

    name: str
    what: str
    address: str
    bytes: int | None = None
    twin: str | None = None

    @property
    def file(self) -> str:
        """Its name on disk."""
        return self.address.rpartition("/")[2]


@dataclass(frozen=True)
class HubModel:
    """A model repository on the Hugging Face hub. Only data files are fetched, never code.

    Attributes:
        name: ``owner/name``.
        what: a few words for the list.
        needs: files that must be there beside the weights.
        wants: files that are taken along where the repository has them.
        endpoint: another hub than the one the library would ask.
    """

    name: str
    what: str
    needs: tuple[str, ...] = ("config.json",)
    wants: tuple[str, ...] = ()
    endpoint: str | None = None

    @property
    def address(self) -> str:
        """Where it is fetched from, and a browser finds it."""
        endpoint = self.endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
        return f"{endpoint.rstrip('/')}/{self.name}"


Model = WebFile | HubModel


_ESM = tuple(
    WebFile(name, f"ESM-2 {name.split('_')[2]}", f"{FAIR_ESM}/{name}.pt", size, f"facebook/{name}")
    for name, size in (
        ("esm2_t6_8M_UR50D", None),
        ("esm2_t12_35M_UR50D", None),
        ("esm2_t30_150M_UR50D", None),
        ("esm2_t33_650M_UR50D", None),
        ("esm2_t36_3B_UR50D", 5_678_116_398),  # Content-Length of the released file
        ("esm2_t48_15B_UR50D", None),
    )
)
_TOKENIZER = ("config.json", "tokenizer.json")

KNOWN: tuple[Model, ...] = (
    HubModel("zhihan1996/DNABERT-S", "DNABERT-S", _TOKENIZER, ("tokenizer_config.json",)),
    *_ESM,
    *(
        WebFile(file, f"classifier, {file[:3]} bp", f"{ORIGINAL}/raw/HEAD/{file}")
        for file in ("300_model.pth", "500_model.pth")
    ),
    *(HubModel(str(esm.twin), f"{esm.what}, Hugging Face") for esm in _ESM),
)

# What `virnucpro predict --model-type` of this name loads with the default configuration.
SETS = {
    length: ("zhihan1996/DNABERT-S", "esm2_t36_3B_UR50D", f"{length}_model.pth")
    for length in ("300", "500")
}


def model_named(name: str) -> Model:
    """Return the model of that name; any ``owner/name`` is taken as one on the hub.

    Raises:
        ModelError: no such model; suggests the nearest (exit 64).
    """
    for model in KNOWN:
        if model.name == name:
            return model
    if _HUB_NAME.fullmatch(name) and ".." not in name:
        return HubModel(name, "from the hub")
    near = difflib.get_close_matches(name, [model.name for model in KNOWN], n=1)
    hint = f"did you mean {near[0]}?" if near else "see virnucpro models list; lite needs none"
    raise ModelError(f"no model is called {name!r}; {hint}")


def models_for(name: str) -> tuple[Model, ...]:
    """Return the models that a model type (``300``, ``500``) needs, or the one model of that name.

    Raises:
        ModelError: no such model.
    """
    return tuple(model_named(part) for part in SETS.get(name, (name,)))


def files_to_fetch(model: HubModel, offered: Iterable[str]) -> tuple[str, ...] | None:
    """Return the ``offered`` files that are needed, or None where something needed is missing."""
    names = sorted(name for name in offered if "/" not in name)
    if not set(model.needs) <= set(names):
        return None
    for head, shards in WEIGHTS:
        if head in names:
            parts = [name for name in names if shards and fnmatch(name, shards)]
            extra = [name for name in model.wants if name in names and name not in model.needs]
            return (*model.needs, *extra, head, *parts)
    return None
