"""The state of an unfinished training on the disk, with which a later start continues."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from virnucpro.contracts import Json
from virnucpro.encoders.weights import read_pickle
from virnucpro.errors import InputError, ModelError
from virnucpro.store.disk import Disk
from virnucpro.store.documents import SCHEMAS, in_schema

AVERAGE = "average"  # in ``extra``: the state of the running mean of the weights


@dataclass
class Savepoint:
    """The state of a training after ``batch`` batches of epoch ``epoch`` (from 0).

    Order, dropout and learning rate follow from seed, epoch, batch and history wherever possible,
    so that no state of a random generator or of a schedule is needed.

    Attributes:
        identity: everything that decides the weights. It must be the same when training continues.
        network, optimizer: their states.
        extra: what else the rest depends on: the scale of the gradients in fp16, the running mean
            of the weights, and what the training itself adds.
        loss: the sum of the losses in this epoch.
        best: the state of the network after ``best_epoch`` (from 1); empty before the first one
            ends.
        history: one row per epoch: epoch, epochs, loss, the metrics of the validation part, rate,
            seconds.
        finished: whether the training is over.
    """

    identity: dict[str, Json]
    network: dict[str, torch.Tensor] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    epoch: int = 0
    batch: int = 0
    loss: float = 0.0
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    best_epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    finished: bool = False

    def last_network(self) -> dict[str, torch.Tensor]:
        """Return the state of the network after the last batch, averaged if there is a mean."""
        if AVERAGE not in self.extra:
            return self.network
        state: Mapping[str, torch.Tensor] = self.extra[AVERAGE]
        return {n.removeprefix("module."): v for n, v in state.items() if n != "n_averaged"}


def save_savepoint(path: Path, savepoint: Savepoint, disk: Disk) -> None:
    """Write a savepoint in place of an earlier one."""
    buffer = io.BytesIO()  # torch.save does not report that a disk is full
    torch.save({"schema": SCHEMAS["savepoint"], **vars(savepoint)}, buffer)
    disk.save(path, buffer.getvalue())


def load_savepoint(path: Path) -> Savepoint:
    """Read a savepoint."""
    try:
        document = in_schema("savepoint", read_pickle(path), path)
        del document["schema"]
        return Savepoint(**document)
    except (ModelError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged: start over with --force") from error
