"""The state of a training on the disk: what ``--resume`` goes on with."""

from __future__ import annotations

import io
import pickle
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from virnucpro.contracts import Json
from virnucpro.errors import InputError
from virnucpro.store.disk import Disk
from virnucpro.store.migrations import current_schema, upgraded


@dataclass
class Savepoint:
    """A training after ``batch`` batches of epoch ``epoch`` (from 0).

    Order, dropout and learning rate follow from seed, epoch and batch: there is no other state of
    a random generator or scheduler.

    Attributes:
        identity: everything that decides the weights; must be the same when it is gone on with.
        network: its state.
        optimizer: its state.
        loss: sum of the losses of the frames seen in the epoch.
        best: state of the network at its lowest validation loss; empty before the first epoch.
        history: one row an epoch: the fields of :class:`.progress.EpochEnded`.
        finished: whether training is over.
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
        """Number (from 1) of the epoch with the lowest validation loss; 0 before the first."""
        if not self.history:
            return 0
        return int(
            min(self.history, key=lambda row: (row["validation_loss"], row["epoch"]))["epoch"]
        )


def save(path: Path, point: Savepoint, disk: Disk) -> None:
    """Write a savepoint, in place of an earlier one.

    Raises:
        OutputError: the disk is full or unwritable.
    """
    buffer = io.BytesIO()  # torch.save onto a full disk fails without saying so
    torch.save({"schema": current_schema("savepoint"), **vars(point)}, buffer)
    disk.save(path, buffer.getvalue())


def load(path: Path) -> Savepoint | None:
    """Read a savepoint; None where there is none.

    Raises:
        InputError: it is damaged.
        ResumeRefused: a newer version wrote it.
    """
    damaged = (OSError, RuntimeError, EOFError, pickle.UnpicklingError, KeyError, TypeError)
    if not path.exists():
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch only warns of some damaged files
            document = torch.load(path, map_location="cpu", weights_only=True)
        document = upgraded("savepoint", document, path)
        del document["schema"]
        return Savepoint(**document)
    except (*damaged, ValueError, Warning) as error:
        raise InputError(f"{path} is damaged: start over with --force") from error
