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
from virnucpro.classifier import to_bytes as classifier_bytes
from virnucpro.encoders.lite import lite_to_bytes, read_lite
from virnucpro.encoders.lite_features import Words
from virnucpro.encoders.weights import read_pickle
from virnucpro.errors import InputError, ModelError, ResumeRefusedError, UsageError
from virnucpro.executors.signals import Interruption
from virnucpro.metrics.classification import auroc
from virnucpro.metrics.temperature import fit_temperature
from virnucpro.store.disk import Disk, DiskWithoutResume, sha256_of
from virnucpro.store.lock import locked
from virnucpro.training.data.dataset import Dataset, Part
from virnucpro.training.lite.censuses import WORDS, CountedWords, count_words
from virnucpro.training.lite.encoders import LiteRecipe, Pair, Trainer, chunk_scores, margins
from virnucpro.training.lite.frames import FrameSet, folds_of, load_frames

SAVE_SECONDS = 60.0
ENCODERS = ("lite-nucleotide", "lite-protein")


class Progress(Protocol):
    """Shows how far it is; see ``virnucpro.ui.step_screen``."""

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
    interruption: Interruption,
    force: bool = False,
    words: Sequence[Words] = WORDS,
    disk: Disk | None = None,
) -> Mapping[str, Any] | None:
    """Train the pair, or go on with an interrupted training of the same recipe and data.

    ``force`` moves what is there to ``*.previous`` and starts over. ``words`` are those that the
    protein encoder counts.

    Returns:
        The content of ``lite.json``; None where the same training was finished before.

    Raises:
        VirNucProError: see ``virnucpro.errors``; an interrupted training is resumed by the same
            command.
    """
    disk, files = disk or DiskWithoutResume(), LiteFiles(root.absolute())
    identity = {
        "recipe": asdict(recipe),
        "data_set": sha256_of(dataset.description_file) if dataset.description() else "",
        "words": [asdict(kind) for kind in words],
        "threads": torch.get_num_threads(),
    }
    disk.make_folder(files.root)
    with locked(files.root / ".lite.lock"):
        disk.sweep(files.root)
        if force:
            _set_aside(files, disk)
        if _finished(files, identity):
            return None
        trainer_state = _saved(files.savepoint, identity)
        sets, clusters, counted = _prepared(dataset, words, progress)
        trainer = Trainer(recipe, sets, clusters, counted)
        if trainer_state is not None:
            trainer.load_state(trainer_state)
        progress.begin("training", recipe.steps - trainer.step)
        with interruption.held():  # leaving it raises Interrupted, after the state is saved
            saved = time.monotonic()
            while trainer.step < recipe.steps and interruption.number is None:
                trainer.advance()
                progress.advance(1)
                if time.monotonic() - saved > SAVE_SECONDS:
                    _save(files.savepoint, identity, trainer, disk)
                    saved = time.monotonic()
            _save(files.savepoint, identity, trainer, disk)
        facts = _write(files, trainer.finish(), counted, dataset, identity, disk, progress)
        disk.remove(files.savepoint)
    return facts


def _prepared(
    dataset: Dataset, words: Sequence[Words], progress: Progress
) -> tuple[Any, Any, list[CountedWords]]:
    progress.begin("reading frames, finding relatives, counting words", 2 + len(words))
    sets, names = load_frames(dataset, "train")
    if not sets:
        raise InputError(f"{dataset.root} has no frames to train on: prepare more genomes")
    progress.advance(1)
    clusters = folds_of(sets, len(names))
    progress.advance(1)
    counted = []
    for kind in words:
        counted.append(count_words(kind, sets, clusters))
        progress.advance(1)
    return sets, clusters, counted


def _write(
    files: LiteFiles,
    pair: Pair,
    counted: Sequence[CountedWords],
    dataset: Dataset,
    identity: Mapping[str, Any],
    disk: Disk,
    progress: Progress,
) -> Mapping[str, Any]:
    """Write the encoders, calibrate on what they give after rounding, and write the rest."""
    command = _command(identity["recipe"])
    said = {"command": command, "version": __version__, "data_set": identity["data_set"]}
    everyone = [words.census for words in counted]
    disk.save(files.nucleotide, lite_to_bytes("nucleotide", pair.nucleotide, (), said))
    disk.save(files.protein, lite_to_bytes("protein", pair.protein, everyone, said))
    pair.nucleotide, pair.protein = read_lite(files.nucleotide)[1], read_lite(files.protein)[1]
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
            str(frames.length): _figures(frames, margin, temperature or 1.0)
            for frames, margin in zip(sets, found, strict=True)
        }
        progress.advance(1)
    facts = {
        **said,
        **identity,
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


def _figures(frames: FrameSet, margin: Any, temperature: float) -> dict[str, Any]:
    """AUROC of chunks, None where one label is missing; and how many there are."""
    scores, virus = chunk_scores(margin / temperature, frames)
    area = auroc(virus, scores)
    return {
        "chunks": len(scores),
        "virus": int(virus.sum()),
        "auroc": None if area is None else round(area, 4),
    }


def _command(recipe: Mapping[str, Any]) -> str:
    """The command that trains the same; without paths, so that the same training is the same."""
    options = f"--steps {recipe['steps']} --seed {recipe['seed']}"
    return f"virnucpro train lite DATASET --output-dir DIR {options}"


def _set_aside(files: LiteFiles, disk: Disk) -> None:
    """Move what is there to ``*.previous``; the classifier first, without which nothing counts."""
    for path in (
        files.classifier,
        files.facts,
        files.nucleotide,
        files.protein,
        files.savepoint,
    ):
        if path.exists():
            disk.move(path, path.with_name(f"{path.name}.previous"))


def _finished(files: LiteFiles, identity: Mapping[str, Any]) -> bool:
    """Whether this very training is done, with however many threads.

    Raises:
        ResumeRefused: another one is there, or its files were changed.
    """
    if not files.classifier.exists():
        return False
    try:
        said = json.loads(files.facts.read_text(encoding="utf-8"))
        other = any(said[name] != identity[name] for name in ("recipe", "data_set", "words"))
        digests = [said["encoders"][name] for name in ENCODERS]
    except (OSError, ValueError, KeyError, TypeError):
        other, digests = True, []
    if other:
        raise ResumeRefusedError(
            f"{files.root} holds encoders of another recipe or data set: choose another "
            f"--output-dir, or start over with --force, which moves them aside"
        )
    for path, digest in zip((files.nucleotide, files.protein), digests, strict=True):
        if not path.exists() or sha256_of(path) != digest:
            raise ResumeRefusedError(
                f"{path} is not the file that was trained here: put it back, or train again with "
                f"--force"
            )
    return True


def _save(path: Path, identity: Mapping[str, Any], trainer: Trainer, disk: Disk) -> None:
    buffer = io.BytesIO()
    torch.save({"identity": json.dumps(identity, sort_keys=True), **trainer.state()}, buffer)
    disk.save(path, buffer.getvalue())


def _saved(path: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        state = read_pickle(path)
    except ModelError as error:
        raise ResumeRefusedError(f"{path} is damaged: start over with --force") from error
    if not isinstance(state, dict) or state.pop("identity", "") != json.dumps(
        identity, sort_keys=True
    ):
        raise ResumeRefusedError(
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
