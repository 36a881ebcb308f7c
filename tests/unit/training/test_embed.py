"""Frames that cannot be embedded: recorded, left out, and tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tests.training_data import make_dataset
from virnucpro.contracts import (
    Device,
    ReportProgress,
    Session,
    Stage,
    Task,
    TaskOutcome,
    TaskResult,
)
from virnucpro.events import Event
from virnucpro.executors.executor import Executor
from virnucpro.executors.local import LocalPool
from virnucpro.io.fasta import read_fasta
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.store.features import load_features
from virnucpro.training.data.dataset import read_embedding_record
from virnucpro.training.embed import EmbedRequest, embed


@dataclass(frozen=True)
class Poisoned:
    """The stage of proteins, which cannot embed one of them."""

    stage: Stage
    name: str = "protein_embeddings"
    poison: str = ""

    def __getattr__(self, name: str) -> object:
        return getattr(self.stage, name)

    def open(self, device: Device) -> Session:
        session = self.stage.open(device)

        def call(task: Task, report: ReportProgress) -> TaskResult:
            names = [n for n, _ in read_fasta(task.inputs[0], *(task.span or (0, None)))]
            if self.poison in names:
                raise ValueError("cannot embed this")
            return session(task, report)

        return call


class PoisonedExecutor(Executor):
    """In this process; one protein fails."""

    def __init__(self, poison: str) -> None:
        super().__init__(LocalPool(Device("cpu", threads=1)), host_threads=1)
        self.poison = poison

    def run(
        self, stage: Stage, tasks: Iterable[Task], emit: Callable[[Event], None]
    ) -> Iterator[TaskOutcome]:
        poisoned = (
            Poisoned(stage, poison=self.poison) if stage.name == "protein_embeddings" else stage
        )
        return super().run(poisoned, tasks, emit)  # type: ignore[arg-type]


def test_failed_frames_are_left_out_and_tried_again(tmp_path):
    dataset = make_dataset(tmp_path, genomes=(2, 1, 1), codons=600, shard=15)
    layout = dataset.layout("train")
    poison = [row.frame for row in dataset.frames("train")][3]
    analysis = AnalysisSettings(model_type="toy").resolved()
    request = EmbedRequest(dataset.root, analysis, MachineSettings(device="cpu"))
    first, *others = embed(request, lambda event: None, executor=PoisonedExecutor(poison))
    assert first.failed == 1
    assert not any(part.failed for part in others)
    assert poison in (dataset.root / "failed_files.txt").read_text()
    assert poison not in load_features(layout.merged(1), "merged").ids
    assert read_embedding_record(layout)["counts"]["failed"] == 1

    results = embed(request, lambda event: None)
    assert not any(part.failed for part in results)
    assert load_features(layout.merged(1), "merged").ids[3] == poison
    assert read_embedding_record(layout)["counts"]["failed"] == 0
    assert not (dataset.root / "failed_files.txt").exists()
    assert not layout.part_folders()
