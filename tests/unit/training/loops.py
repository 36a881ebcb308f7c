"""Training of a plan in this process, and results that are the same."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from virnucpro.contracts import Device
from virnucpro.events import EpochEnded
from virnucpro.store.disk import Disk
from virnucpro.training.group import TrainingGroup
from virnucpro.training.loop import train_network
from virnucpro.training.savepoint import Savepoint, save_savepoint

ALONE = TrainingGroup(0, 1, torch.device("cpu"))


class Plan(NamedTuple):
    """A training that has not begun: what makes its loop, and its savepoint."""

    loop: partial
    savepoint: Path


def plan_of(kind, path, *arguments):
    """A training of the loop ``kind`` whose savepoint is at ``path``."""
    save_savepoint(path, Savepoint({}), Disk())
    return Plan(partial(kind, path, *arguments), path)


def run(plan, stop=lambda: False):
    """Train; returns whether it came to its end, and its epochs."""
    events = []
    torch.set_num_threads(1)
    finished = train_network(plan.loop, 0, 1, Device("cpu"), events.append, stop)
    return finished, [event for event in events if isinstance(event, EpochEnded)]


def in_pieces(plan):
    """Train, stopped whenever it asks for the third time; returns how often that was."""
    stops, finished = 0, False
    while not finished:
        answers = iter([False, False])
        finished, _ = run(plan, lambda answers=answers: next(answers, True))
        stops += not finished
    return stops


def same(one, two, atol=0, rtol=0):
    """The weights are the same, or near each other."""
    assert one.keys() == two.keys()
    for key in one:
        assert torch.allclose(one[key], two[key], atol=atol, rtol=rtol), key
