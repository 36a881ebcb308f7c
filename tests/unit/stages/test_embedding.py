"""A split file becomes a feature file, less the sequences that cannot be computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.unit.encoders.small import fair_model, make_dnabert, save_fair
from virnucpro.contracts import Device, FailedRow, Molecule, ReportProgress, Task, TaskResult
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.registry import locate
from virnucpro.encoders.toy import ToyEncoder
from virnucpro.errors import DeviceError
from virnucpro.events import Event, TaskFinished
from virnucpro.io.fasta import fasta_bytes
from virnucpro.layout import Layout
from virnucpro.settings import MachineSettings
from virnucpro.stages.embedding import EmbeddingStage, EncoderSetup
from virnucpro.store.disk import Disk
from virnucpro.store.features import load_features
from virnucpro.workers.local_pool import LocalPool
from virnucpro.workers.scheduler import Workers

COUNT = 620


@pytest.fixture
def stage(tmp_path: Path) -> EmbeddingStage:
    layout = Layout(tmp_path, "in", 500)
    source = locate("toy", "protein")
    place = ("protein_embeddings", "", layout, Disk())
    return EmbeddingStage(*place, "protein", source, "fp32", 1024, None)


@pytest.fixture
def task(stage: EmbeddingStage) -> Task:
    pairs = ((f"r{n}", "MKV" * (1 + n % 7) + "LIND"[n % 4]) for n in range(COUNT))
    path, out = stage.layout.split("protein", 1), stage.layout.features("protein", 1)
    Disk().save(path, fasta_bytes(pairs))
    receipt = out.with_name(out.name + ".done")
    return Task("protein_embeddings", 1, (path,), (out,), receipt, count=COUNT)


def _embedded(stage: EmbeddingStage, task: Task) -> TaskResult:
    return stage.open(Device("cpu")).compute(task, lambda n, t: None)()


def test_each_encoder_computes_in_what_it_gains_from(tmp_path):
    """So a run in fp8 has the nucleotide features of one in bf16."""
    paths = make_dnabert(tmp_path / "dna"), save_fair(fair_model(), tmp_path / "esm.pt")
    molecules: tuple[Molecule, Molecule] = ("nucleotide", "protein")
    sources = {each: locate(str(path), each) for each, path in zip(molecules, paths, strict=True)}
    place = Layout(tmp_path, "in", 500), Disk(), MachineSettings()
    of = {name: EncoderSetup(sources, name, 1024).stages(*place) for name in ("bf16", "fp8")}
    assert of["fp8"][0] == of["bf16"][0]
    assert [stage.precision for stage in of["fp8"]] == ["bf16", "fp8"]


def test_what_is_excluded_has_no_row(stage, task):
    rows, session = (0, 250, 619), stage.open(Device("cpu"))
    excluded = tuple(FailedRow(row, "ValueError", "why") for row in rows)
    session._encoder.host_wait_seconds = 1000.0  # for tokens of other files
    done = session.compute(replace(task, excluded=excluded), lambda n, t: None)()
    assert done.figures.host_wait_seconds < 1000
    ids = load_features(task.outputs[0], "protein").ids
    assert ids == [f"r{n}" for n in range(COUNT) if n not in rows]
    assert [failed.ids for failed in done.figures.failures] == [(f"r{row}",) for row in rows]


@pytest.mark.parametrize("everything", [True, False])
def test_a_kernel_that_gives_nan_is_told_from_a_wrong_sequence(
    stage, task, monkeypatch, everything
):
    """Only what a fixed sequence also meets is the fault of the device or the model."""
    encode = ToyEncoder.encode

    def wrong(encoder: ToyEncoder, sequences: list[str], report: ReportProgress) -> torch.Tensor:
        rows = encode(encoder, sequences, report)
        for number, text in enumerate(sequences):
            if everything or text.startswith("MKVL"):
                rows[number] = torch.nan
        return rows

    monkeypatch.setattr(ToyEncoder, "encode", wrong)
    workers = Workers(LocalPool([Device("cpu")]))
    events: list[Event] = []
    outcomes = workers.carry_out(stage, [task], events.append)
    if everything:
        with pytest.raises(DeviceError, match="the model is at fault and not the input"):
            list(outcomes)
        assert not any(event.failures for event in events if isinstance(event, TaskFinished))
        return
    failed = {name for o in outcomes for each in o.figures.failures for name in each.ids}
    assert failed == {f"r{n}" for n in range(COUNT) if n % 7 == 0 and n % 4 == 0}


def test_a_file_is_read_ahead_once_and_a_trial_leaves_it_alone(stage, task, tmp_path, monkeypatch):
    """As on a GPU, where the next file is prepared during the first report of the one before."""
    source = locate(str(save_fair(fair_model(), tmp_path / "esm2_t2_test.pt")), "protein")
    stage = replace(stage, source=source, budget=256)
    path, out = stage.layout.split("protein", 2), stage.layout.features("protein", 2)
    Disk().save(path, fasta_bytes((f"s{n}", "MKVL" * (1 + n % 5)) for n in range(40)))
    following = replace(task, inputs=(path,), outputs=(out,))
    expected = [_embedded(stage, each).outputs for each in (task, following)]
    prepare, prepared = BatchedEncoder.prepare, list[int]()

    def noted(encoder: BatchedEncoder, sequences: list[str]) -> object:
        prepared.append(len(sequences))
        return prepare(encoder, sequences)

    monkeypatch.setattr(BatchedEncoder, "prepare", noted)
    session = stage.open(Device("cpu"))

    to_begin = iter([following])

    def begin(sequences: int, tokens: int) -> None:
        for each in to_begin:
            session.prepare(each)

    tasks = [task, replace(task, trial=(7, 9)), following]
    done = [session.compute(each, begin)().outputs for each in tasks]
    assert done == [expected[0], (), expected[1]]
    assert prepared == [COUNT, 40, 2]
    session.prepare(following)
    done = [session.compute(each, begin)().outputs for each in (task, following)]
    assert done == expected
    assert prepared[3:] == [40, COUNT, 40]
