"""Training of a plan in this process, and results that are the same."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from virnucpro.contracts import Device
from virnucpro.events import EpochEnded
from virnucpro.store.disk import Disk
from virnucpro.training.loop import Savepoint, save_savepoint
from virnucpro.training.processes import train_on

CPU = torch.device("cpu")


class Plan(NamedTuple):
    """A training that has not begun: what makes its loop, and its savepoint."""

    loop: partial
    savepoint: Path


def plan_of(kind, path, *arguments):
    """A training of the loop ``kind`` whose savepoint is at ``path``."""
    save_savepoint(path, Savepoint({}), Disk())
    return Plan(partial(kind, path, *arguments), path)


class Stopped(Exception):
    """What a signal raises."""


def run(plan, epochs=10**9, processes=1):
    """Train, or only so many epochs; returns the events of the epochs."""
    ended = []

    def report(event):
        if isinstance(event, EpochEnded):
            ended.append(event)
        elif len(ended) == epochs:
            raise Stopped

    torch.set_num_threads(1)
    with suppress(Stopped):
        train_on(plan.loop, [Device("cpu", threads=1)] * processes, report)
    return ended


def same(one, two, atol=0, rtol=0):
    """The weights are the same, or near each other."""
    assert one.keys() == two.keys()
    for key in one:
        assert torch.allclose(one[key], two[key], atol=atol, rtol=rtol), key
