"""Files are joined beside the loop, and count only when the loop has committed them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.contract.counting import Counting
from tests.contract.running import fasta
from virnucpro.contracts import Device, FailedTask, Task, TaskResult
from virnucpro.errors import OutputError
from virnucpro.layout import RunLayout
from virnucpro.run.spans import Spans
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger


@dataclass(frozen=True)
class Gated(Counting):
    """Joins a file only when its gate is opened; one called ``unjoinable`` fails then."""

    gate: threading.Event = field(default_factory=threading.Event)

    def join(
        self, task: Task, parts: Sequence[TaskResult], failures: Sequence[FailedTask]
    ) -> TaskResult:
        assert self.gate.wait(20)
        if task.inputs[0].stem == "unjoinable":
            raise OutputError("the disk is full")
        return super().join(task, parts, failures)


def _spans(stage: Counting, folder: Path) -> tuple[Spans, Ledger]:
    ledger = Ledger(RunLayout(folder, "x", 500), Disk(), {})
    stale = [task for task in stage.plan() if ledger.check(task).stale]
    return Spans(stage, stale, ledger, Disk()), ledger


def _compute(stage: Counting, spans: Spans) -> list[Task]:
    session = stage.open(Device("cpu"))
    return [whole for task in spans.todo for whole in spans.add(session(task, lambda n, t: None))]


def _compute_and_leave(stage: Gated, spans: Spans) -> None:
    """All spans are there, no file is joined when the block is left."""
    with spans:
        _compute(stage, spans)
        threading.Timer(0.1, stage.gate.set).start()


def _stage(folder: Path, *names: str) -> Gated:
    files = tuple(fasta(folder, f"{name}.fa", [f"{name}{n}" for n in range(5)]) for name in names)
    return Gated(files, folder, span=2)


def test_the_loop_goes_on_while_files_are_joined(tmp_path: Path) -> None:
    stage = _stage(tmp_path, "a", "b", "c")
    spans, ledger = _spans(stage, tmp_path)
    with spans:
        assert _compute(stage, spans) == []  # all computed, and no file is there yet
        assert not list(tmp_path.glob("*.done"))
        stage.gate.set()
        assert [task.inputs for task in spans.rest()] == [(path,) for path in stage.files]
    assert (tmp_path / "b.txt").read_text() == "b0 5\nb1 6\nb2 7\nb3 8\nb4 9\n"
    assert not list(tmp_path.glob("*.parts"))
    assert not any(ledger.check(task).stale for task in stage.plan())


def test_a_joined_file_is_told_by_the_next_outcome(tmp_path: Path) -> None:
    stage = _stage(tmp_path, "a", "b")
    stage.gate.set()
    spans, _ = _spans(stage, tmp_path)
    session = stage.open(Device("cpu"))
    with spans:
        for task in spans.todo[:3]:
            spans.add(session(task, lambda n, t: None))
        spans._joining[0][1].result()
        whole = spans.add(session(spans.todo[3], lambda n, t: None))
        assert [task.inputs[0].stem for task in whole] == ["a"]
        assert (tmp_path / "a.done").exists()
        assert not (tmp_path / "a.parts").exists()


def test_a_file_that_cannot_be_joined_ends_the_run_and_keeps_its_parts(tmp_path: Path) -> None:
    stage = _stage(tmp_path, "unjoinable", "b")
    spans, _ = _spans(stage, tmp_path)
    with spans:
        _compute(stage, spans)
        stage.gate.set()
        with pytest.raises(OutputError, match="the disk is full"):
            spans.rest()
    again, _ = _spans(stage, tmp_path)
    assert again.todo == []  # every span is still proved


def test_what_was_left_early_is_joined_by_the_next_run_and_not_computed_again(
    tmp_path: Path,
) -> None:
    stage = _stage(tmp_path, "a", "b", "c", "d")
    spans, _ = _spans(stage, tmp_path)
    _compute_and_leave(stage, spans)
    assert not list(tmp_path.glob("*.done"))
    assert not list(tmp_path.glob(".*.tmp"))
    again, ledger = _spans(stage, tmp_path)
    with again:
        assert again.todo == []
        assert len(again.rest()) == 4
    assert not any(ledger.check(task).stale for task in stage.plan())


@pytest.mark.parametrize("file", ["000002-000004.txt", "000002-000004.txt.done"])
@pytest.mark.parametrize("left", [0, 3])
def test_a_part_that_a_power_cut_tore_is_computed_again(
    tmp_path: Path, file: str, left: int
) -> None:
    stage = _stage(tmp_path, "a")
    spans, _ = _spans(stage, tmp_path)
    _compute_and_leave(stage, spans)
    torn = tmp_path / "a.parts" / file
    torn.write_bytes(torn.read_bytes()[:left])
    again, _ = _spans(stage, tmp_path)
    assert [task.span for task in again.todo] == [(2, 4)]
    with again:
        _compute(stage, again)
        again.rest()
    assert (tmp_path / "a.txt").read_text() == "a0 5\na1 6\na2 7\na3 8\na4 9\n"
