"""A stage is added in two places: its own class, and the list of stages."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from virnucpro.contracts import Receipts, ReportProgress, Stage, Task, TaskFigures, TaskResult
from virnucpro.events import Event, Notice, StageStarted
from virnucpro.layout import RESULT_SUFFIXES
from virnucpro.run import predict
from virnucpro.run.predict import run_prediction
from virnucpro.run.prepare import Models
from virnucpro.run.request import PredictionRequest
from virnucpro.run.status import statuses
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.stages.base import HostStage
from virnucpro.store.disk import Disk
from virnucpro.store.documents import sealed, unsealed


@dataclass(frozen=True, kw_only=True)
class CountFigures(TaskFigures):
    """The number of rows of the consensus."""

    rows: int


@dataclass(frozen=True)
class CountStage(HostStage):
    """Counts the rows of the consensus."""

    name: ClassVar[str] = "row_count"
    reads_intermediate: ClassVar[bool] = False

    def plan(self, receipts: Receipts) -> list[Task]:
        inputs, outputs = (self.layout.consensus,), (self.layout.result("rows.txt"),)
        return [self.whole(inputs, outputs, {}, figures=CountFigures)]

    def run(self, task: Task, report: ReportProgress) -> TaskResult:
        rows = len(task.inputs[0].read_text().splitlines()) - 1
        output = self.disk.save(task.outputs[0], f"{rows}\n".encode(), 1)
        return TaskResult(task, (output,), CountFigures(rows=rows, notices=("rows are counted",)))


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PredictionRequest:
    stages = predict.prediction_stages

    def with_count(
        request: PredictionRequest, models: Models, disk: Disk, *more: Any
    ) -> list[Stage]:
        return [*stages(request, models, disk, *more), CountStage(request.layout, disk)]

    monkeypatch.setattr(predict, "prediction_stages", with_count)
    monkeypatch.setattr("virnucpro.layout.RESULT_SUFFIXES", (*RESULT_SUFFIXES, "rows.txt"))
    source = tmp_path / "in.fa"
    source.write_text("".join(f">r{n}\n{'GCTACCGGATTC' * (10 + n)}\n" for n in range(4)))
    analysis = AnalysisSettings(model_type="toy", chunk_length=60)
    return PredictionRequest(
        str(source), tmp_path / "out", analysis, MachineSettings(device="cpu"), resume=True
    )


def _carried_out(request: PredictionRequest) -> tuple[list[str], list[Event]]:
    """The stages that had something to do, and all events."""
    events: list[Event] = []
    run_prediction(request, events.append)
    started = [event for event in events if isinstance(event, StageStarted)]
    assert [event.number for event in started] == list(range(1, 11))
    assert {event.stages for event in started} == {10}
    assert (started[-1].title, started[-1].on_workers) == ("Row count", False)
    return [event.stage for event in started if event.todo], events


def test_an_extra_stage_runs_is_resumed_shown_and_timed(request_: PredictionRequest) -> None:
    done, events = _carried_out(request_)
    layout = request_.layout
    assert done[-1] == "row_count"
    assert len(done) == 10
    rows = int(layout.result("rows.txt").read_text())
    assert rows == len(layout.consensus.read_text().splitlines()) - 1 > 0
    assert Notice("warning", "rows are counted") in events
    assert json.loads(layout.run_json.read_text())["seconds"].keys() == set(done)

    (status,) = statuses(layout.root)
    assert status.state == "finished"
    assert status.stages[-1].title == "Row count"
    assert _carried_out(request_)[0] == []

    layout.result("rows.txt").unlink()
    (status,) = statuses(layout.root)
    assert [stage.name for stage in status.todo] == ["row_count"]
    assert _carried_out(request_)[0] == ["row_count"]
    assert int(layout.result("rows.txt").read_text()) == rows


@pytest.mark.parametrize(
    "figures", [None, [], {}, {"rows": "5"}, {"rows": True}, {"rows": 5, "notices": "text"}]
)
def test_a_stage_whose_figures_are_damaged_is_done_again(
    request_: PredictionRequest, figures: object
) -> None:
    _carried_out(request_)
    name = request_.layout.receipt("row_count").relative_to(request_.layout.root).as_posix()
    for path in request_.layout.receipt_files:
        document = unsealed(path.read_bytes())
        receipt = document["receipts"][name]
        receipt["figures"] = receipt["figures"] | figures if figures else figures
        path.write_bytes(sealed(document))
    assert _carried_out(replace(request_, resume=False))[0] == ["row_count"]
    stored = json.loads(path.read_text())["receipts"]
    assert stored[name]["figures"]["rows"] > 0
