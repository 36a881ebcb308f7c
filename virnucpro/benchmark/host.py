"""Measure the host's part of a run with the stages of predict in a temporary folder."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from virnucpro.benchmark.measuring import Notify
from virnucpro.benchmark.workload import MIXES, SENSE, Workload
from virnucpro.classifier.files import classifier_to_bytes, inspect_classifier
from virnucpro.contracts import Device, Json, ReportProgress, Task, TaskResult
from virnucpro.encoders.batched import BatchedEncoder
from virnucpro.encoders.family import EncoderSource, OpenOptions
from virnucpro.encoders.registry import released_families
from virnucpro.io.chunks import chunk_spans
from virnucpro.io.fasta import fasta_bytes
from virnucpro.io.pairs import InputFiles
from virnucpro.layout import MOLECULES, Molecule, RunLayout
from virnucpro.stages.base import HostStage
from virnucpro.stages.chunking import ChunkingStage, hashed_input
from virnucpro.stages.consensus import ConsensusStage
from virnucpro.stages.embedding import EmbeddingStage
from virnucpro.stages.embedding_session import EmbeddingSession
from virnucpro.stages.merging import MergingStage
from virnucpro.stages.output import OutputStage
from virnucpro.stages.prediction import PredictionStage
from virnucpro.stages.splitting import SplittingStage
from virnucpro.stages.translation import TranslationStage
from virnucpro.store.disk import Disk
from virnucpro.store.ledger import Ledger

ROWS = 5000  # chunks of the random records, each with an open frame
FRAMES_PER_FILE = 10_000  # as in predict
WIDTHS: Mapping[Molecule, int] = {"nucleotide": 768, "protein": 2560}  # DNABERT-S, ESM-2 3B
HIDDEN = 512  # units of the released classifiers
CLASSIFIED = 256  # rows at a time, as in predict
MILLION = 1_000_000
SLICE = 500  # sequences tokenised at a time


@dataclass(frozen=True)
class HostStep:
    """A part of a run that can be repeated.

    Attributes:
        count: the frames of each call.
        beside: whether it happens while devices compute. Then they wait only if it is too slow.
    """

    name: str
    count: int
    call: Callable[[], object]
    beside: bool = False


def measure_stages(
    work: Workload, source: Path | None, seconds: float, notify: Notify
) -> list[dict[str, Json]]:
    """Return the rates of all that the host does, in frames, each measured for ``seconds``.

    Chunks and frames are those of ``source``. Features, and without a source everything, are those
    of random records.

    Raises:
        InputError: ``source`` cannot be used.
        OutputError: the temporary folder cannot be written.
    """
    rates: list[dict[str, Json]] = []
    with tempfile.TemporaryDirectory(prefix="virnucpro-") as folder:
        notify("the stages once, to have what each of them reads")
        # A repeated step writes its files again: only then, or the ledger calls them changed.
        for step in list(_steps(work, source, Path(folder))):
            notify(f"stage {step.name}")
            step.call()  # warm
            calls, started = 0, time.perf_counter()
            while (elapsed := time.perf_counter() - started) < seconds or not calls:
                step.call()
                calls += 1
            rate = calls * step.count / elapsed
            rates.append(
                {
                    "stage": step.name,
                    "beside_the_device": step.beside,
                    "frames_per_second": rate,
                    "seconds_per_million": MILLION / rate,
                    "measured": calls * step.count,
                }
            )
    return rates


def host_seconds(stages: Sequence[Mapping[str, Json]]) -> float:
    """Return the seconds per million frames in which a single device has nothing to do."""
    waits = (row["seconds_per_million"] for row in stages if not row["beside_the_device"])
    return float(sum(waits))


class _StageRun:
    """A run whose stages are carried out one by one, without encoders."""

    def __init__(self, folder: Path, source: Path, chunk_length: int) -> None:
        self.disk = Disk()
        self.layout = RunLayout(folder, "bench", chunk_length)
        seen = hashed_input(source)
        self.input = InputFiles(source), [seen]
        self.disk.make_folder(folder)
        self.ledger = Ledger(self.layout, self.disk, {source: seen.sha256})
        self.place = (self.layout, self.disk)

    @property
    def frames(self) -> int:
        """The number of open frames, which is known after the translation."""
        return self.ledger.outputs("translation")[0].rows

    def carried_out(self, stage: HostStage) -> tuple[str, Callable[[], TaskResult]]:
        """Carry out a stage, and return its name and a function that repeats it."""
        (task,) = stage.plan(self.ledger)
        again = partial(stage.run, task, _unseen)
        self.ledger.commit(again())
        return stage.name, again


def _steps(work: Workload, source: Path | None, folder: Path) -> Iterator[HostStep]:
    made = _write_random_records(folder / "made.fa", work.name)
    run = _StageRun(folder / "run", source or made, work.chunk_length)
    yield from _frame_steps(run)
    # Tokens do not depend on the size of the model.
    for family in released_families():
        encoder = family.open_random("1x24x2", OpenOptions("cpu", "fp32", None, 1024))
        some = list(work.of(family.molecule)[:SLICE])
        call = partial(_tokenise, encoder, some)
        yield HostStep(f"tokens of {family.name}", len(some), call, beside=True)
    if source:
        run = _StageRun(folder / "made", made, work.chunk_length)
        list(_frame_steps(run))
    for molecule in MOLECULES:
        yield from _embedding_steps(run, molecule)
    yield from _result_steps(run)


def _write_random_records(path: Path, name: str) -> Path:
    """Write records of the mean length of the mix, from codons without a stop."""
    mix = MIXES[name if name in MIXES else "500"]
    length = (mix.shortest + mix.longest) // 2
    draw, codons = random.Random(0), list(SENSE)
    count = ROWS // len(chunk_spans(length, mix.chunk))
    pairs = ((f"record{n}", "".join(draw.choices(codons, k=length // 3))) for n in range(count))
    Disk().save(path, fasta_bytes(pairs))
    return path


def _frame_steps(run: _StageRun) -> Iterator[HostStep]:
    """Yield the steps from the input to split files."""
    shortest = run.layout.chunk_length
    stages = (
        ChunkingStage(*run.place, *run.input, "rename", shortest),
        TranslationStage(*run.place),
        SplittingStage(*run.place, FRAMES_PER_FILE),
    )
    done = [run.carried_out(stage) for stage in stages]
    yield from (HostStep(name, max(1, run.frames), again) for name, again in done)


def _tokenise(encoder: BatchedEncoder, sequences: list[str]) -> None:
    for _ in encoder.batches(sequences):
        pass


class _ImmediateEncoder:
    """An encoder that returns at once, so that only the host's part of a span is measured."""

    host_wait_seconds = 0.0

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self._rows: dict[int, torch.Tensor] = {}

    def encode(self, sequences: Sequence[str], report: ReportProgress) -> torch.Tensor:
        """Return the same rows for the same number of sequences."""
        count = len(sequences)
        if count not in self._rows:
            drawn = torch.Generator().manual_seed(count)
            self._rows[count] = torch.randn(count, self.dim, generator=drawn)
        return self._rows[count]

    def facts(self) -> Mapping[str, Json]:
        """Return no facts."""
        return {}

    def shrink(self) -> bool:
        """Refuse, because it has no batches."""
        return False


def _embedding_steps(run: _StageRun, molecule: Molecule) -> Iterator[HostStep]:
    """Yield what a worker does between two spans, and the parent when a file is complete."""
    encoder = _ImmediateEncoder(WIDTHS[molecule])
    family = next(family for family in released_families() if family.molecule == molecule)
    source = EncoderSource(family.name, "none", None, (), "0" * 64, encoder.dim)
    stage = EmbeddingStage(*run.place, molecule, source, "fp32", 1024, None)
    session = EmbeddingSession(encoder, source, molecule, stage.disk, Device("cpu"), {})

    def embed(task: Task) -> list[TaskResult]:
        return [session(span, _unseen) for span in stage.split(task)]

    tasks = stage.plan(run.ledger)
    parts = [embed(task) for task in tasks]
    for task, done in zip(tasks, parts, strict=True):
        run.ledger.commit(stage.join(task, done, []))
    first, count = tasks[0], tasks[0].count
    spans = stage.split(first)
    name = stage.name

    def again() -> None:
        for span in spans:
            run.disk.remove(span.outputs[0])  # a file system may write out what is replaced
            session(span, _unseen)

    yield HostStep(f"{name}: between spans", count, again)
    join = partial(stage.join, first, parts[0], [])
    yield HostStep(f"{name}: joining a file", count, join, beside=True)


def _result_steps(run: _StageRun) -> Iterator[HostStep]:
    """Yield the steps from features to tables."""
    merging = MergingStage(*run.place)
    tasks = merging.plan(run.ledger)
    for task in tasks:
        run.ledger.commit(merging.run(task, _unseen))
    yield HostStep("merging", tasks[0].count or run.frames, partial(merging.run, tasks[0], _unseen))
    classifier = run.layout.root / "classifier.safetensors"
    run.disk.save(classifier, _classifier(sum(WIDTHS.values())))
    for stage in (
        PredictionStage(*run.place, inspect_classifier(classifier), CLASSIFIED),
        ConsensusStage(*run.place),
        OutputStage(*run.place, *run.input, calibrated=True),
    ):
        name, again = run.carried_out(stage)
        yield HostStep(name, run.frames, again)


def _classifier(width: int) -> bytes:
    """Return a classifier file of the released size with random weights."""
    drawn = torch.Generator().manual_seed(0)
    shapes = {
        "hidden_layer.weight": (HIDDEN, width),
        "hidden_layer.bias": (HIDDEN,),
        "bn1.weight": (HIDDEN,),
        "bn1.bias": (HIDDEN,),
        "bn1.running_mean": (HIDDEN,),
        "bn1.running_var": (HIDDEN,),
        "output_layer.weight": (2, HIDDEN),
        "output_layer.bias": (2,),
    }
    state = {name: torch.rand(shape, generator=drawn) for name, shape in shapes.items()}
    return classifier_to_bytes(state, encoders=(), chunk_lengths=(), extra={})


def _unseen(sequences: int, tokens: int) -> None:
    """Ignore a progress report."""
