"""Embeddings of a frame are matched by id; tables are made of the scores of all split files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from virnucpro import columns
from virnucpro.contracts import MOLECULES, Task
from virnucpro.io.fasta import fasta_bytes
from virnucpro.layout import Layout
from virnucpro.stages.merging import MergingStage, prediction_rows
from virnucpro.stages.prediction import ConsensusStage, PredictionStage
from virnucpro.store.disk import Disk
from virnucpro.store.features import Features, encode_features, load_features
from virnucpro.store.ledger import Ledger
from virnucpro.tables import CONSENSUS


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path, "in", 500)


IDS = [f"r{n}_chunk_1F1" for n in range(6)]


def _file(layout: Layout, number: int, nucleotide: list[str], protein: list[str]) -> Task:
    """Features of which a row holds the place of its id, and the task that merges them."""
    disk = Disk()
    disk.save(layout.split("nucleotide", number), fasta_bytes((name, "ACGT") for name in IDS))
    for molecule, ids, width in (("nucleotide", nucleotide, 2), ("protein", protein, 3)):
        rows = torch.tensor([[float(number * 100 + IDS.index(name))] * width for name in ids])
        path = layout.features(molecule, number)
        disk.save(path, encode_features(Features(ids, rows), molecule))
    return MergingStage(layout, disk, MOLECULES).task(Ledger(layout, disk), number)


@pytest.mark.parametrize(
    ("protein", "failed", "merged"),
    [
        (IDS, [], IDS),
        (IDS[::-1], [], IDS),
        ([*IDS[3:], *IDS[:3]], [], IDS),
        (IDS[1:], IDS[:1], IDS[1:]),  # what failed in one molecule is left out of both
        (IDS[1:], [], None),
        (IDS[2:], IDS[:1], None),
        (IDS[:5], IDS[:1], None),
    ],
)
def test_rows_are_matched_by_id_and_none_is_made_up(layout, protein, failed, merged):
    task = replace(_file(layout, 1, IDS, protein), params={"failed": failed})
    stage = MergingStage(layout, Disk(), MOLECULES)
    if merged is None:
        with pytest.raises(KeyError):
            stage.run(task, lambda n, t: None)
        assert not task.outputs[0].exists()
        return
    stage.run(task, lambda n, t: None)
    found = load_features(task.outputs[0], "merged")
    assert found.ids == merged
    places = torch.tensor([100.0 + IDS.index(name) for name in merged])
    assert torch.equal(found.data, places[:, None].expand(-1, 5))


def _task(layout: Layout, *files: dict[str, list[float]]) -> Task:
    for number, scores in enumerate(files, 1):
        rows = prediction_rows(list(scores), np.array(list(scores.values()), np.float32))
        Disk().save(layout.scores(number), rows.encode())
    inputs = tuple(layout.scores(number) for number in range(1, len(files) + 1))
    return Task("s", 1, inputs, (layout.predictions,), layout.receipt("s"))


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 4096])
def test_the_frames_of_a_chunk_go_together_however_many_rows_are_read_at_a_time(
    layout, monkeypatch, rows
):
    monkeypatch.setattr(columns, "ROWS_AT_A_TIME", rows)
    scores = {
        **{f"a_chunk_1F{n}": [n / 8, 1 - n / 8] for n in (1, 2, 3)},
        "a_chunk_2F1": [0.25, 0.5],
        **{f"b_chunk_1R{n}": [1 - n / 8, n / 8] for n in (1, 2)},
    }
    task = _task(layout, dict(list(scores.items())[:2]), dict(list(scores.items())[2:]))
    predicted = PredictionStage(layout, Disk()).run(task, lambda n, t: None)
    assert predicted.outputs[0].rows == len(scores)
    chunks = Task("s", 1, task.outputs, (layout.consensus,), layout.receipt("s"))
    done = ConsensusStage(layout, Disk()).run(chunks, lambda n, t: None)
    assert done.outputs[0].rows == 3
    assert list(CONSENSUS.read(layout.consensus, *CONSENSUS.row._fields)) == [
        ["a_chunk_1", "True", "0.375", "0.875"],
        ["a_chunk_2", "True", "0.25", "0.5"],
        ["b_chunk_1", "False", "0.875", "0.25"],
    ]


def test_a_tie_is_others_of_a_frame_and_virus_of_a_chunk(layout):
    """As text, 9.9e-05 would be more than 0.5."""
    rows = [[9.9e-5, 0.5], [0.5, 9.9e-5], [0.5, 0.5]]
    names = ["a_chunk_1F1", "a_chunk_1R1", "a_chunk_2F1"]
    task = _task(layout, dict(zip(names, rows, strict=True)))
    PredictionStage(layout, Disk()).run(task, lambda n, t: None)
    assert layout.predictions.read_text().endswith("\na_chunk_2F1\tothers\t0.5\t0.5\n")
    chunks = Task("s", 1, task.outputs, (layout.consensus,), layout.receipt("s"))
    ConsensusStage(layout, Disk()).run(chunks, lambda n, t: None)
    rows_of_chunks = layout.consensus.read_text().splitlines()[1:]
    assert rows_of_chunks == [f"a_chunk_{number}\tTrue\t0.5\t0.5" for number in (1, 2)]
