"""What a training finds where it writes: its own unfinished and finished work, or other files."""

from __future__ import annotations

import pytest
import torch

from virnucpro.errors import InputError, ResumeRefusedError, UsageError
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


@pytest.fixture
def savepoint(tmp_path):
    return tmp_path / CHECKPOINTS / "it.pt"


@pytest.fixture
def results(tmp_path):
    return tmp_path / "report.json", tmp_path / "model"


@pytest.fixture
def begin(savepoint, results):
    def _begin(identity=IDENTITY, finished=(), **options):
        notices = []
        work = (WorkIdentity("it", identity), savepoint, results, dict(finished), Disk())
        point = begin_training(*work, notices.append, **options)
        return point, [notice.message for notice in notices]

    return _begin


def save(path, **state):
    save_savepoint(path, Savepoint(dict(IDENTITY), **state), Disk())


def test_an_unfinished_training_goes_on_and_another_one_does_not(savepoint, begin):
    save(savepoint, epoch=3)
    point, notices = begin()
    assert (point.epoch, notices) == (3, ["going on with it"])
    with pytest.raises(ResumeRefusedError, match="seed: was 1, is 2"):
        begin(IDENTITY | {"seed": 2})
    assert load_savepoint(savepoint).epoch == 3
    point, _ = begin(IDENTITY | {"seed": 2}, force=True)
    assert (point.identity["seed"], point.epoch) == (2, 0)


def test_a_finished_training(savepoint, results, begin):
    for path in results:
        path.write_text("mine")
    point, notices = begin(finished=IDENTITY)
    assert (point, notices) == (None, ["it is finished: its results are checked"])
    with pytest.raises(ResumeRefusedError, match="data set: was b, is a"):
        begin(finished=IDENTITY | {"data set": "b"})
    save(savepoint, finished=True)  # it was killed while it wrote them
    assert begin(finished=IDENTITY)[0].finished
    assert begin(finished=IDENTITY, force=True)[0].epoch == 0
    assert not any(path.exists() for path in results)
    savepoint.unlink()
    assert begin(finished=IDENTITY)[0] is not None
    results[0].write_text("mine")
    savepoint.unlink()
    with pytest.raises(UsageError, match="is there already"):
        begin()


@pytest.mark.parametrize(
    ("document", "error"),
    [(b"not this", InputError), ({"schema": 99}, ResumeRefusedError)],
)
def test_savepoints_that_cannot_be_read(savepoint, begin, document, error):
    savepoint.parent.mkdir()
    if isinstance(document, bytes):
        savepoint.write_bytes(document)
    else:
        torch.save(document, savepoint)
    with pytest.raises(error, match="start over with --force"):
        begin()
    assert not begin(force=True)[0].epoch > 0
