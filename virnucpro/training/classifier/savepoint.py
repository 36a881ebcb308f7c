"""The state of an unfinished training on the disk, with which a later start continues."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from virnucpro.contracts import Json
from virnucpro.encoders.weights import read_pickle
from virnucpro.errors import InputError, ModelError
from virnucpro.store.disk import Disk
from virnucpro.store.migrations import current_schema, upgraded


@dataclass
class Savepoint:
    """The state of a training after ``batch`` batches of epoch ``epoch`` (from 0).

    Order, dropout and learning rate follow from seed, epoch and batch, so no state of a random
    generator or of a schedule is needed.

    Attributes:
        identity: everything that decides the weights. It must be the same when training continues.
        network: the state of the network.
        optimizer: the state of the optimizer.
        loss: the sum of the losses of the frames seen in this epoch.
        best: the state of the network at its lowest validation loss; empty before the first epoch.
        history: one row per epoch with the fields of :class:`.progress.EpochEnded`, but ``best``.
        finished: whether the training is over.
    """

    identity: dict[str, Json]
    network: dict[str, torch.Tensor] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    epoch: int = 0
    batch: int = 0
    loss: float = 0.0
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)
    finished: bool = False

    @property
    def best_epoch(self) -> int:
        """Return the epoch (from 1) with the lowest validation loss; 0 before the first."""
        if not self.history:
            return 0
        best_row = min(self.history, key=lambda row: (row["validation_loss"], row["epoch"]))
        return int(best_row["epoch"])


def save_savepoint(path: Path, savepoint: Savepoint, disk: Disk) -> None:
    """Write a savepoint in place of an earlier one.

    Raises:
        OutputError: the disk is full or unwritable.
    """
    buffer = io.BytesIO()  # torch.save does not report that a disk is full
    torch.save({"schema": current_schema("savepoint"), **vars(savepoint)}, buffer)
    disk.save(path, buffer.getvalue())


def load_savepoint(path: Path) -> Savepoint | None:
    """Read a savepoint. None means that there is none.

    Raises:
        InputError: it is damaged.
        ResumeRefusedError: a newer version wrote it.
    """
    if not path.exists():
        return None
    try:
        document = read_pickle(path)
        document = upgraded("savepoint", document, path)
        del document["schema"]
        return Savepoint(**document)
    except (ModelError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged: start over with --force") from error
