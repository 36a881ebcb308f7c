"""From a data set to a pair of lite encoders with their classifier and model card."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from virnucpro import __version__
from virnucpro.classifier.files import classifier_to_bytes
from virnucpro.encoders.lite import lite_to_bytes, read_lite
from virnucpro.encoders.lite_features import Words
from virnucpro.encoders.weights import read_pickle
from virnucpro.errors import InputError, ModelError, ResumeRefusedError, UsageError
from virnucpro.executors.signals import Interruption
from virnucpro.layout import checkpoint_folder, lock_file
from virnucpro.metrics.classification import auroc
from virnucpro.metrics.temperature import fit_temperature
from virnucpro.store.disk import Disk, DiskWithoutResume, sha256_of
from virnucpro.store.guard import ExistingWork, WorkIdentity, admit_work
from virnucpro.store.lock import locked
from virnucpro.store.migrations import current_schema, upgraded
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

    @property
    def lock(self) -> Path:
        """Held by the process that trains."""
        return lock_file(self.root, self.facts.name)

    @property
    def previous(self) -> Path:
        """The folder that takes what ``--force`` moves aside."""
        return checkpoint_folder(self.root) / "lite.previous"


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

    ``force`` moves what is there to :attr:`LiteFiles.previous` and starts over. ``words`` are
    those that the protein encoder counts.

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
    with locked(files.lock, "these encoders"):
        disk.sweep(files.root)
        existing, trainer_state = _existing_work(files, identity, force=force)
        wanted = WorkIdentity(_label(files), _settings(identity))
        admission = admit_work(wanted, existing, disk, force=force)
        if admission.decision == "finished":
            _check_encoders(files)
            return None
        if admission.decision == "start":
            trainer_state = None
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
        "schema": current_schema("lite training"),
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
    content = classifier_to_bytes(
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


def _settings(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides the weights, by names for people."""
    settings = {name.replace("_", " "): value for name, value in identity["recipe"].items()}
    return {
        **settings,
        "data set": identity["data_set"],
        "words": identity["words"],
        "threads": identity["threads"],
    }


def _label(files: LiteFiles) -> str:
    return f"the training of the encoders in {files.root.name}"


def _existing_work(
    files: LiteFiles, identity: Mapping[str, Any], *, force: bool
) -> tuple[ExistingWork, dict[str, Any] | None]:
    """Return what the folder holds, and the state of an unfinished training.

    Raises:
        ResumeRefusedError: the savepoint is damaged, and ``force`` does not move it aside.
    """
    # The classifier comes first: without it, nothing counts.
    paths = (files.classifier, files.facts, files.nucleotide, files.protein)
    results = [path for path in paths if path.exists()]
    existing = ExistingWork(files.root, files.previous, foreign_files=results)
    known: WorkIdentity | None
    if files.savepoint.exists():
        try:
            state = dict(read_pickle(files.savepoint))
            earlier = json.loads(state.pop("identity"))
            known = WorkIdentity(_label(files), _settings(earlier))
            complete = state["step"] >= earlier["recipe"]["steps"]
        except (ModelError, ValueError, KeyError, TypeError, AttributeError) as error:
            if not force:
                raise ResumeRefusedError(
                    f"{files.savepoint} is damaged: start over with --force"
                ) from error
            return replace(existing, own_files=[files.savepoint]), None
        # Before a training is complete, it has written nothing but its savepoint.
        own = [*(results if complete else []), files.savepoint]
        foreign = [] if complete else results
        return replace(existing, own_files=own, foreign_files=foreign, identity=known), state
    try:
        facts = upgraded("lite training", json.loads(files.facts.read_bytes()), files.facts)
        # A finished training is the same with however many threads.
        known = WorkIdentity(_label(files), _settings({**facts, "threads": identity["threads"]}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return existing, None
    except ResumeRefusedError:  # written by a newer version
        if not force:
            raise
        known = None
    finished = files.classifier.exists()
    existing = replace(
        existing, own_files=results, foreign_files=[], identity=known, finished=finished
    )
    return existing, None


def _check_encoders(files: LiteFiles) -> None:
    """See that the encoders of a finished training are those that were trained.

    Raises:
        ResumeRefusedError: they were changed or removed.
    """
    digests = json.loads(files.facts.read_bytes()).get("encoders", {})
    for name, path in zip(ENCODERS, (files.nucleotide, files.protein), strict=True):
        if not path.exists() or sha256_of(path) != digests.get(name):
            raise ResumeRefusedError(
                f"{path} is not the file that was trained here: put it back, or train again with "
                f"--force"
            )


def _save(path: Path, identity: Mapping[str, Any], trainer: Trainer, disk: Disk) -> None:
    buffer = io.BytesIO()
    torch.save({"identity": json.dumps(identity, sort_keys=True), **trainer.state()}, buffer)
    disk.save(path, buffer.getvalue())


def check_packages() -> None:
    """See that what only training needs is installed.

    Raises:
        UsageError: it is not.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise UsageError("train lite needs scikit-learn: pip install 'virnucpro[train]'") from error
