"""Scores do not depend on threads, or on what was read ahead."""

from __future__ import annotations

import pytest
import torch

from virnucpro.classifier.files import INNER_BATCH, classifier_to_bytes, inspect_classifier
from virnucpro.contracts import Task
from virnucpro.errors import OutputError
from virnucpro.layout import Layout
from virnucpro.stages.prediction import ConsensusStage, PredictionStage
from virnucpro.store.disk import Disk
from virnucpro.store.features import DamagedFeaturesError, Features, encode_features

WIDTH = 24
ROWS = (3 * INNER_BATCH + 17, 5, 2 * INNER_BATCH, 700)  # of each file


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Merged files and a classifier."""
    layout = Layout(tmp_path_factory.mktemp("run"), "in", 500)
    random = torch.Generator().manual_seed(3)
    for number, count in enumerate(ROWS, 1):
        rows = torch.randn(count, WIDTH, generator=random)
        ids = [f"f{number}r{n}" for n in range(count)]
        content = encode_features(Features(ids, rows), "merged")
        Disk().save(layout.features("merged", number), content)
    shapes = {
        "hidden_layer.weight": (32, WIDTH), "hidden_layer.bias": (32,), "bn1.weight": (32,),
        "bn1.bias": (32,), "bn1.running_mean": (32,), "bn1.running_var": (32,),
        "output_layer.weight": (2, 32), "output_layer.bias": (2,),
    }  # fmt: skip
    state = {name: torch.rand(shape, generator=random) for name, shape in shapes.items()}
    content = classifier_to_bytes(state, encoders=(), chunk_lengths=(), extra={})
    (layout.root / "c.safetensors").write_bytes(content)
    return layout


def _predicted(layout: Layout, threads: int) -> bytes:
    files = tuple(layout.features("merged", number) for number in range(1, len(ROWS) + 1))
    classifier = layout.root / "c.safetensors"
    stage = PredictionStage(layout, Disk(), inspect_classifier(classifier))
    out = layout.root / "scores.txt"
    task = Task("prediction", 1, files, (out,), out.with_suffix(".done"))
    reported: list[int] = []
    torch.set_num_threads(threads)
    done = stage.run(task, lambda n, t: reported.append(n))
    assert sum(reported) == done.outputs[0].rows == sum(ROWS)
    return out.read_bytes()


def test_the_same_bytes_on_any_number_of_threads(layout: Layout) -> None:
    expected = _predicted(layout, 1)
    for threads in (2, 3):
        assert _predicted(layout, threads) == expected
    lines = [line.split("\t") for line in expected.decode().splitlines()]
    names = [f"f{f}r{n}" for f, count in enumerate(ROWS, 1) for n in range(count)]
    assert [line[0] for line in lines[1:]] == names
    classifier = inspect_classifier(layout.root / "c.safetensors").model
    last = torch.load(layout.features("merged", 4))["data"]
    scores = classifier.scores(last).tolist()
    assert [[float(line[2]), float(line[3])] for line in lines[-700:]] == [
        [pytest.approx(a, rel=1e-6), pytest.approx(b, rel=1e-6)] for a, b in scores
    ]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_damaged_file_ends_it_and_leaves_nothing(layout: Layout, threads: int) -> None:
    path = layout.features("merged", 3)
    good = path.read_bytes()
    (layout.root / "scores.txt").unlink(missing_ok=True)
    path.write_bytes(good[:-100])
    try:
        with pytest.raises(DamagedFeaturesError):
            _predicted(layout, threads)
    finally:
        path.write_bytes(good)
    assert not list(layout.root.glob("*scores.txt*"))


def test_a_tie_is_others_of_a_frame_and_virus_of_a_chunk(layout: Layout) -> None:
    """As text, 9.9e-05 would be more than 0.5."""
    rows = torch.tensor([[9.9e-5, 0.5], [0.5, 9.9e-5], [0.5, 0.5]])
    scores = Features(["a_chunk_1F1", "a_chunk_1R1", "a_chunk_2F1"], rows)
    part = Disk().save(layout.features("scores", 1), encode_features(scores, "scores"))
    stage = PredictionStage(layout, Disk(), inspect_classifier(layout.root / "c.safetensors"))
    task = Task("s", 1, (), (layout.predictions,), layout.receipt("s"), parts=(part,))
    stage.run(task, lambda n, t: None)
    assert layout.predictions.read_text().endswith("\na_chunk_2F1\tothers\t0.5\t0.5\n")
    chunks = Task("s", 1, task.outputs, (layout.consensus,), layout.receipt("s"))
    ConsensusStage(layout, Disk()).run(chunks, lambda n, t: None)
    rows_of_chunks = layout.consensus.read_text().splitlines()[1:]
    assert rows_of_chunks == [f"a_chunk_{number}\tTrue\t0.5\t0.5" for number in (1, 2)]
    Disk().save(layout.features("scores", 1), b"changed meanwhile")
    with pytest.raises(OutputError, match="other content"):
        stage.run(task, lambda n, t: None)
