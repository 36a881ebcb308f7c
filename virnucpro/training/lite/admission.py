"""The files of a lite training, and what of an earlier training is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from virnucpro.encoders.weights import read_pickle
from virnucpro.errors import ModelError, ResumeRefusedError
from virnucpro.layout import checkpoint_folder, lock_file
from virnucpro.store.disk import sha256_of
from virnucpro.store.documents import parse_json
from virnucpro.store.migrations import upgraded
from virnucpro.store.work import ExistingWork, WorkIdentity


class LiteFiles:
    """The files that a lite training writes into the folder ``root``.

    Attributes:
        encoder: the encoder.
        classifier: the classifier on the encoder, which is written last.
        report: the file that says how both were trained, and how good they are.
        savepoint: the state of an unfinished training.
        lock: the file that the training process locks.
        previous: the folder that takes what ``--force`` moves aside.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.encoder = root / "lite_encoder.safetensors"
        self.classifier = root / "lite_classifier.safetensors"
        self.report = root / "lite.json"
        self.savepoint = root / "lite.savepoint.pt"
        self.lock = lock_file(root, self.report.name)
        self.previous = checkpoint_folder(root) / "lite.previous"


def work_identity(files: LiteFiles, identity: Mapping[str, Any]) -> WorkIdentity:
    """Return what decides the weights, by names for people, for `check_work`.

    ``identity`` has ``settings``, ``data_set`` and ``threads``.
    """
    settings = {name.replace("_", " "): value for name, value in identity["settings"].items()}
    return WorkIdentity(
        f"the training of the encoder in {files.root.name}",
        {**settings, "data set": identity["data_set"], "threads": identity["threads"]},
    )


def existing_training(
    files: LiteFiles, threads: int, *, force: bool
) -> tuple[ExistingWork, dict[str, Any] | None]:
    """Return what the folder holds, and the state of an unfinished training.

    Raises:
        ResumeRefusedError: the savepoint is damaged, or a newer version wrote the report, and
            ``force`` does not move them aside.
    """
    # The classifier comes first: without it, the training is not finished.
    paths = (files.classifier, files.report, files.encoder)
    results = [path for path in paths if path.exists()]
    existing = ExistingWork(files.root, files.previous, foreign_files=results)
    if files.savepoint.exists():
        try:
            state = dict(read_pickle(files.savepoint))
            earlier = parse_json(state.pop("identity"))
            known = work_identity(files, earlier)
            complete = state["step"] >= earlier["settings"]["steps"]
        except (ModelError, ValueError, KeyError, TypeError, AttributeError) as error:
            if not force:
                raise ResumeRefusedError(
                    f"{files.savepoint} is damaged: start over with --force"
                ) from error
            return replace(existing, own_files=[files.savepoint]), None
        # Before a training is complete, it has written nothing but its savepoint.
        own_files = [*(results if complete else []), files.savepoint]
        foreign_files = [] if complete else results
        existing = replace(
            existing, own_files=own_files, foreign_files=foreign_files, identity=known
        )
        return existing, state
    identity: WorkIdentity | None
    try:
        report = upgraded("lite training", parse_json(files.report.read_bytes()), files.report)
        # A finished training counts as the same with any number of threads.
        identity = work_identity(files, {**report, "threads": threads})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return existing, None
    except ResumeRefusedError:  # a newer version wrote it
        if not force:
            raise
        identity = None
    finished = files.classifier.exists()
    existing = replace(
        existing, own_files=results, foreign_files=[], identity=identity, finished=finished
    )
    return existing, None


def check_encoder(files: LiteFiles) -> None:
    """Check that the encoder of a finished training is the one that was trained.

    Raises:
        ResumeRefusedError: it was changed or removed.
    """
    digest = parse_json(files.report.read_bytes()).get("encoder")
    if not files.encoder.exists() or sha256_of(files.encoder) != digest:
        raise ResumeRefusedError(
            f"{files.encoder} is not the file that was trained here: put it back, or train again "
            f"with --force"
        )
