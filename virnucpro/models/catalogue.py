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
CLASSIFIERS = "https://github.com/Li-Jing-1997/VirNucPro/raw/HEAD"

# In order of preference: safetensors cannot carry code, one file is simpler than several.
# The second column is what an index stands for.
WEIGHTS = (
    ("model.safetensors", None),
    ("model.safetensors.index.json", "model-*-of-*.safetensors"),
    ("pytorch_model.bin", None),
    ("pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin"),
)


def hub_endpoint() -> str:
    """Return the address of the Hugging Face hub, or of the mirror that is asked instead."""
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


@dataclass(frozen=True)
class Model:
    """One file from a web address, or else a repository of the hub, of which data files are taken.

    Attributes:
        name: what users call it; of a repository ``owner/name``.
        what: a few words for the list.
        url: https address of a file; its last part is the name on disk. Empty for a repository.
        twin: of a file that fair-esm knows, the repository with the same weights, which is used
            where the file is not there.
        needs: files of a repository that must be there beside the weights.
    """

    name: str
    what: str
    url: str = ""
    twin: str = ""
    needs: tuple[str, ...] = ("config.json",)

    @property
    def file(self) -> str:
        """The name of a file on disk; empty for a repository."""
        return self.url.rpartition("/")[2]

    @property
    def address(self) -> str:
        """Where it is fetched from, and a browser finds it."""
        return self.url or f"{hub_endpoint()}/{self.name}"


_ESM = tuple(
    Model(name, f"ESM-2 {name.split('_')[2]}", f"{FAIR_ESM}/{name}.pt", f"facebook/{name}")
    for name in (
        "esm2_t6_8M_UR50D",
        "esm2_t12_35M_UR50D",
        "esm2_t30_150M_UR50D",
        "esm2_t33_650M_UR50D",
        "esm2_t36_3B_UR50D",
        "esm2_t48_15B_UR50D",
    )
)
KNOWN = (
    Model("zhihan1996/DNABERT-S", "DNABERT-S", needs=("config.json", "tokenizer.json")),
    *_ESM,
    Model("300_model.pth", "classifier, 300 bp", f"{CLASSIFIERS}/300_model.pth"),
    Model("500_model.pth", "classifier, 500 bp", f"{CLASSIFIERS}/500_model.pth"),
    *(Model(esm.twin, f"{esm.what}, Hugging Face") for esm in _ESM),
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
    names = [model.name for model in KNOWN]
    if name in names:
        return KNOWN[names.index(name)]
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name) and ".." not in name:
        return Model(name, "from the hub")
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else "see virnucpro models list; lite needs none"
    raise ModelError(f"no model is called {name!r}; {hint}")


def models_for(name: str) -> tuple[Model, ...]:
    """Return the models of a model type (``300``, ``500``), or the one of that name.

    Raises:
        ModelError: no such model.
    """
    return tuple(model_named(part) for part in SETS.get(name, (name,)))


def files_to_fetch(model: Model, offered: Iterable[str]) -> list[str]:
    """Return the ``offered`` files of a repository that are needed; none where one is missing."""
    names = sorted(name for name in offered if "/" not in name)
    head, shards = next((each for each in WEIGHTS if each[0] in names), ("", None))
    if not head or not set(model.needs) <= set(names):
        return []
    return [*model.needs, head, *(name for name in names if shards and fnmatch(name, shards))]
