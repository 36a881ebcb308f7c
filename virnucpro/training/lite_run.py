"""From a data set to a pair of lite encoders with their classifier and model card."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from virnucpro import __version__
from virnucpro.checkpoint.disk import Disk, sha256_of
from virnucpro.checkpoint.lock import locked
from virnucpro.classifier import to_bytes as classifier_bytes
from virnucpro.encoders.lite import read
from virnucpro.encoders.lite import to_bytes as encoder_bytes
from virnucpro.encoders.weights import read_pickle
from virnucpro.errors import InputError, ResumeRefused, UsageError
from virnucpro.training.censuses import WORDS, CountedWords, count_words
from virnucpro.training.dataset import Dataset, Part
from virnucpro.training.lite import LiteRecipe, Pair, Trainer, chunk_margins, margins
from virnucpro.training.lite_data import FrameSet, folds_of, load_frames
from virnucpro.training.temperature import fit_temperature

SAVE_SECONDS = 60.0
ENCODERS = ("lite-nucleotide", "lite-protein")


class Progress(Protocol):
    """Shows how far it is; see ``virnucpro.ui.progress``."""

    def begin(self, title: str, total: float) -> None:
        """A step of ``total`` units begins."""
        ...

    def advance(self, amount: float) -> None:
        """So many units more are done."""
        ...


@dataclass(frozen=True)
class LiteFiles:
    """What is written into the folder ``root``."""

    root: Path

    @property
    def nucleotide(self) -> Path:
        """The nucleotide encoder."""
        return self.root / "lite_nucleotide.safetensors"

    @property
    def protein(self) -> Path:
        """The protein encoder."""
        return self.root / "lite_protein.safetensors"

    @property
    def classifier(self) -> Path:
        """The classifier on both; written last."""
        return self.root / "lite_classifier.safetensors"

    @property
    def facts(self) -> Path:
        """What it was trained on, how, and how good it is."""
        return self.root / "lite.json"

    @property
    def savepoint(self) -> Path:
        """The state of an unfinished training."""
        return self.root / "lite.savepoint.pt"


def fit_lite(
    dataset: Dataset,
    root: Path,
    recipe: LiteRecipe,
    progress: Progress,
    *,
    command: Sequence[str],
    force: bool = False,
    disk: Disk | None = None,
) -> Mapping[str, Any] | None:
    """Train the pair, or go on with an interrupted training of the same recipe and data.

    Returns:
        The content of ``lite.json``; None where the same training was finished before.

    Raises:
        VirNucProError: see ``virnucpro.errors``; an interrupted training is resumed by the same
            command.
    """
    disk, files = disk or Disk(), LiteFiles(root.absolute())
    identity = {
        "recipe": asdict(recipe),
        "data set": sha256_of(dataset.facts_file) if dataset.facts() else "",
        "threads": torch.get_num_threads(),
    }
    disk.make_folder(files.root)
    with locked(files.root / ".lite.lock"):
        if _finished(files, identity, force):
            return None
        trainer_state = None if force else _saved(files.savepoint, identity)
        sets, clusters, counted = _prepared(dataset, progress)
        trainer = Trainer(recipe, sets, clusters, counted)
        if trainer_state is not None:
            trainer.load_state(trainer_state)
        progress.begin("training", recipe.steps - trainer.step)
        saved = time.monotonic()
        while trainer.step < recipe.steps:
            trainer.advance()
            progress.advance(1)
            if time.monotonic() - saved > SAVE_SECONDS:
                _save(files.savepoint, identity, trainer, disk)
                saved = time.monotonic()
        facts = _write(files, trainer.finish(), counted, dataset, identity, command, disk, progress)
        disk.remove(files.savepoint)
    return facts


def _prepared(dataset: Dataset, progress: Progress) -> tuple[Any, Any, list[CountedWords]]:
    progress.begin("reading frames, finding relatives, counting words", 2 + len(WORDS))
    sets, names = load_frames(dataset, "train")
    if not sets:
        raise InputError(f"{dataset.root} has no frames to train on: prepare more genomes")
    progress.advance(1)
    clusters = folds_of(sets, len(names))
    progress.advance(1)
    counted = []
    for words in WORDS:
        counted.append(count_words(words, sets, clusters))
        progress.advance(1)
    return sets, clusters, counted


def _write(
    files: LiteFiles,
    pair: Pair,
    counted: Sequence[CountedWords],
    dataset: Dataset,
    identity: Mapping[str, Any],
    command: Sequence[str],
    disk: Disk,
    progress: Progress,
) -> Mapping[str, Any]:
    """Write the encoders, calibrate on what they give after rounding, and write the rest."""
    program = Path(command[0]).name  # where it is installed is nobody's business
    said = {"command": " ".join([program, *command[1:]]), "version": __version__, "data_set": identity["data set"]}
    everyone = [words.census for words in counted]
    disk.save(files.nucleotide, encoder_bytes("nucleotide", pair.nucleotide, (), said))
    disk.save(files.protein, encoder_bytes("protein", pair.protein, everyone, said))
    pair.nucleotide, pair.protein = read(files.nucleotide)[1], read(files.protein)[1]
    parts: list[Part] = ["validation", "test"]
    progress.begin("measuring", len(parts))
    figures: dict[str, Any] = {}
    temperature = None
    for part in parts:
        sets = load_frames(dataset, part)[0] if dataset.shards(part) else []
        found = [margins(pair, frames, everyone) for frames in sets]
        if part == "validation" and sets:
            temperature = _temperature(sets, found)
        figures[part] = {
            str(frames.length): _figures(frames, margin)
            for frames, margin in zip(sets, found, strict=True)
        }
        progress.advance(1)
    facts = {
        **said,
        **identity,
        "words": [asdict(words) for words in WORDS],
        "temperature": temperature,
        "chunk_auroc": figures,
        "encoders": {
            name: sha256_of(path)
            for name, path in zip(ENCODERS, (files.nucleotide, files.protein), strict=True)
        },
    }
    disk.save(files.facts, (json.dumps(facts, indent=1, sort_keys=True) + "\n").encode())
    content = classifier_bytes(
        pair.classifier_state(),
        encoders=ENCODERS,
        chunk_lengths=dataset.lengths(),
        extra={**said, "encoder_sha256": " ".join(facts["encoders"].values())},
        temperature=temperature,
    )
    disk.save(files.classifier, content)
    return facts


def _temperature(sets: Sequence[FrameSet], found: Sequence[Any]) -> float | None:
    """Fitted with as many frames of either label, of all lengths; None where one is missing."""
    margin = np.concatenate(found).astype(np.float64)
    virus = np.concatenate([frames.virus for frames in sets])
    random = np.random.default_rng(0)
    rows = [np.flatnonzero(virus == label) for label in (False, True)]
    size = min(map(len, rows))
    if not size:
        return None
    chosen = np.concatenate([random.permutation(own)[:size] for own in rows])
    return fit_temperature(margin[chosen], virus[chosen].astype(np.int64))


def _figures(frames: FrameSet, margin: Any) -> dict[str, Any]:
    """AUROC of chunks, NaN-free: None where one label is missing; and how many are called."""
    from sklearn.metrics import roc_auc_score

    scores, virus = chunk_margins(margin, frames)
    both = bool(virus.any() and not virus.all())
    return {
        "chunks": len(scores),
        "virus": int(virus.sum()),
        "auroc": round(float(roc_auc_score(virus, scores)), 4) if both else None,
    }


def _finished(files: LiteFiles, identity: Mapping[str, Any], force: bool) -> bool:
    """Whether this very training is done.

    Raises:
        ResumeRefused: another one is there.
    """
    if force or not files.classifier.exists():
        return False
    try:
        said = json.loads(files.facts.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        said = {}
    if {name: said.get(name) for name in identity} != identity:
        raise ResumeRefused(
            f"{files.root} holds encoders of another recipe or data set: choose another "
            f"--output-dir, or overwrite them with --force"
        )
    return True


def _save(path: Path, identity: Mapping[str, Any], trainer: Trainer, disk: Disk) -> None:
    buffer = io.BytesIO()
    torch.save({"identity": json.dumps(identity, sort_keys=True), **trainer.state()}, buffer)
    disk.save(path, buffer.getvalue())


def _saved(path: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    if not path.exists():
        return None
    state = read_pickle(path)
    if not isinstance(state, dict) or state.pop("identity", "") != json.dumps(
        identity, sort_keys=True
    ):
        raise ResumeRefused(
            f"{path} is of a training with another recipe, data set or number of threads: repeat "
            f"that command, choose another --output-dir, or start over with --force"
        )
    return state


def check_packages() -> None:
    """See that what only training needs is installed.

    Raises:
        UsageError: it is not.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise UsageError("train lite needs scikit-learn: pip install 'virnucpro[train]'") from error
