"""What a training finds where it writes: its own unfinished and finished work, or other files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from virnucpro.errors import InputError, ResumeRefusedError
from virnucpro.layout import CHECKPOINTS
from virnucpro.store.disk import Disk
from virnucpro.store.work import WorkIdentity
from virnucpro.training.loop import (
    Savepoint,
    begin_training,
    load_savepoint,
    save_savepoint,
)

IDENTITY = {"data set": "a", "seed": 1}


class Files(NamedTuple):
    savepoint: Path
    results: tuple[Path, ...]


@pytest.fixture
def files(tmp_path):
    results = (tmp_path / "report.json", tmp_path / "model")
    return Files(tmp_path / CHECKPOINTS / "it.pt", results)


@pytest.fixture
def begin(files):
    def _begin(identity=IDENTITY, finished=(), **options):
        notices = []
        work = (WorkIdentity("it", identity), *files, dict(finished), Disk(), notices.append)
        point = begin_training(*work, **options)
        return point, [notice.message for notice in notices]

    return _begin


def save(files, *, write_results=False, **state):
    save_savepoint(files.savepoint, Savepoint(dict(IDENTITY), **state), Disk())
    if write_results:
        write(files)


def write(files, text="mine"):
    for path in files.results:
        path.write_text(text)


def test_an_unfinished_training_goes_on_and_another_one_does_not(files, begin):
    save(files, epoch=3)
    point, notices = begin()
    assert (point.epoch, notices) == (3, ["going on with it"])
    with pytest.raises(ResumeRefusedError, match="seed: was 1, is 2"):
        begin(IDENTITY | {"seed": 2})
    assert load_savepoint(files.savepoint).epoch == 3
    point, _ = begin(IDENTITY | {"seed": 2}, force=True)
    assert (point.identity["seed"], point.epoch) == (2, 0)


def test_results_belong_to_a_training_that_is_over_only(files, begin):
    save(files, finished=True, write_results=True)  # it was killed while it wrote them
    assert begin()[0].finished
    save(files, epoch=1)
    assert begin()[0].epoch == 1
    begin(force=True)
    assert [path.read_text() for path in files.results] == ["mine", "mine"]  # not ours to remove


def test_a_finished_training(files, begin):
    write(files)
    point, notices = begin(finished=IDENTITY)
    assert (point, notices) == (None, ["it is finished: its results are checked"])
    with pytest.raises(ResumeRefusedError, match="data set: was b, is a"):
        begin(finished=IDENTITY | {"data set": "b"})
    files.results[-1].unlink()  # the one that shows that it is finished
    assert begin(finished=IDENTITY)[0] is not None


@pytest.mark.parametrize(
    ("document", "error"),
    [(b"not this", InputError), *(({"schema": n}, ResumeRefusedError) for n in (1, 99))],
)
def test_savepoints_that_cannot_be_read(files, begin, document, error):
    files.savepoint.parent.mkdir()
    if isinstance(document, bytes):
        files.savepoint.write_bytes(document)
    else:
        torch.save(document, files.savepoint)
    with pytest.raises(error, match="start over with --force"):
        begin()
    assert not begin(force=True)[0].epoch > 0
