"""Spans of a file, embedded one by one, are the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from virnucpro.contracts import (
    Device,
    FailedTask,
    FeatureWindow,
    ReportProgress,
    Task,
    TaskResult,
)
from virnucpro.encoders.registry import locate
from virnucpro.encoders.toy import ToyEncoder
from virnucpro.errors import DeviceError, OutputError
from virnucpro.events import Event, TaskFailed
from virnucpro.executors.executor import Executor
from virnucpro.executors.local import LocalPool
from virnucpro.io.fasta import fasta_bytes, read_fasta
from virnucpro.layout import RunLayout
from virnucpro.stages.embedding import EmbeddingStage
from virnucpro.store.disk import Disk
from virnucpro.store.features import load_features

COUNT = 620


@pytest.fixture
def stage(tmp_path: Path) -> EmbeddingStage:
    layout = RunLayout(tmp_path, "in", 500)
    source = locate("toy", "protein")
    return EmbeddingStage(layout, Disk(), "protein", source, "fp32", 1024, None)


@pytest.fixture
def task(stage: EmbeddingStage) -> Task:
    pairs = ((f"r{n}", "MKV" * (1 + n % 7) + "LIND"[n % 4]) for n in range(COUNT))
    path, out = stage.layout.split("protein", 1), stage.layout.features("protein", 1)
    Disk().save(path, fasta_bytes(pairs))
    return Task(
        "protein_embeddings", 1, (path,), (out,), out.with_name(out.name + ".done"), count=COUNT
    )


def _embedded(stage: EmbeddingStage, task: Task) -> list[TaskResult]:
    session = stage.open(Device("cpu"))
    return [session(span, lambda n, t: None) for span in stage.split(task)]


def test_joined_spans_are_the_file(stage: EmbeddingStage, task: Task) -> None:
    parts = _embedded(stage, task)
    assert [part.task.span for part in parts] == [(0, 250), (250, 500), (500, 620)]
    done = stage.join(task, parts, [])
    found = load_features(task.outputs[0], "protein")
    records = list(read_fasta(task.inputs[0]))
    assert found.ids == [name for name, _ in records]
    assert done.outputs[0].rows == COUNT
    whole = stage.open(Device("cpu"))(task, lambda n, t: None)
    assert whole.outputs == done.outputs
    assert not torch.equal(found.data[0], found.data[1])


@pytest.mark.parametrize(
    ("sequences", "size"), [(COUNT, 250), (160_000, 250), (320_000, 500), (9_000_000, 2000)]
)
def test_spans_are_a_share_of_the_run(
    stage: EmbeddingStage, task: Task, sequences: int, size: int
) -> None:
    spans = replace(stage, sequences=sequences).split(task)
    assert spans[0].count == min(size, COUNT)
    assert replace(stage, sequences=sequences, molecule="nucleotide").split(task)[0].count == COUNT


def test_what_failed_has_no_row(stage: EmbeddingStage, task: Task) -> None:
    first, second, third = _embedded(stage, task)
    failed = FailedTask(second.task, "ValueError", "why", stage.ids(second.task))
    done = stage.join(task, [first, third], [failed])
    ids = load_features(task.outputs[0], "protein").ids
    assert ids == [f"r{n}" for n in (*range(250), *range(500, 620))]
    assert done.figures.failures[0].ids == tuple(f"r{n}" for n in range(250, 500))


def test_nothing_but_failures_is_a_file_without_rows(stage: EmbeddingStage, task: Task) -> None:
    failed = FailedTask(task, "ValueError", "why", stage.ids(task))
    stage.join(task, [], [failed])
    assert load_features(task.outputs[0], "protein").data.shape == (0, stage.source.dim)


def test_a_part_that_the_disk_has_lost_is_not_joined(stage: EmbeddingStage, task: Task) -> None:
    parts = _embedded(stage, task)
    path = parts[1].outputs[0].path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # a number: the file can still be read
    path.write_bytes(content)
    with pytest.raises(OutputError, match="other content than was written to it"):
        stage.join(task, parts, [])
    assert not task.outputs[0].exists()


@pytest.mark.parametrize("everything", [True, False])
def test_a_kernel_that_gives_nan_is_told_from_a_wrong_sequence(
    stage: EmbeddingStage, task: Task, monkeypatch: pytest.MonkeyPatch, *, everything: bool
) -> None:
    """Only what a fixed sequence also meets is the fault of the device or the model."""
    encode = ToyEncoder.encode

    def wrong(encoder: ToyEncoder, sequences: list[str], report: ReportProgress) -> torch.Tensor:
        rows = encode(encoder, sequences, report)
        for number, text in enumerate(sequences):
            if everything or text.startswith("MKVL"):
                rows[number] = torch.nan
        return rows

    monkeypatch.setattr(ToyEncoder, "encode", wrong)
    executor = Executor(LocalPool(Device("cpu")), 1)
    events: list[Event] = []
    outcomes = executor.run(stage, stage.split(task), events.append)
    if everything:
        with pytest.raises(DeviceError, match="the model is at fault and not the input"):
            list(outcomes)
        assert not any(isinstance(event, TaskFailed) for event in events)
        return
    failed = {name for o in outcomes if isinstance(o, FailedTask) for name in o.ids}
    assert failed == {f"r{n}" for n in range(COUNT) if n % 7 == 0 and n % 4 == 0}


def test_in_a_window_batches_and_compiling_are_those_of_the_whole_run(
    stage: EmbeddingStage, task: Task
) -> None:
    """Else a run without features would compute other last bits, or measure in each window."""
    within = stage.within(FeatureWindow((1,), 50 * COUNT, {"a budget": 7}))
    assert within.with_tasks([task]).sequences == 50 * COUNT
    assert within.kept == {"a budget": 7}
    assert stage.with_tasks([task]).sequences == COUNT
