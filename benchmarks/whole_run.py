"""Measure a whole run on devices that only sleep, as long as an H200 would compute.

    python -m benchmarks.whole_run [--frames 200000] [--devices 8] [--bases 500] [--keep FOLDER]

Everything but the encoders is real: the host stages, the pool with a process per device, features of the
real widths on the disk, receipts, the classifier of the released size. Workers are started before
the clock. ``gain`` is how many times faster the run is than one on a single device with the same host.
What this process computed is given, too, because other programs make the clock tell little.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from unittest.mock import patch

import torch

from benchmarks.models import CHUNK, SENSE, classifier
from virnucpro.classifier.files import inspect_classifier
from virnucpro.configuration import Configuration
from virnucpro.contracts import Device, Molecule, ReportProgress, Session, Task, TaskResult
from virnucpro.encoders.family import EncoderSource
from virnucpro.events import Event, StageFinished, StageStarted
from virnucpro.executors.executor import Executor
from virnucpro.executors.processes import ProcessPool
from virnucpro.io.fasta import read_fasta
from virnucpro.run import predict, prepare
from virnucpro.run.request import PredictionRequest
from virnucpro.settings import AnalysisSettings, MachineSettings, Thresholds
from virnucpro.stages.embedding import EmbeddingStage, EncoderSetup
from virnucpro.store.features import Features, encode_features

# Sequences per second of one H200 through `predict` (GPU_OPTIMIZATION.md), and widths.
RATES: dict[Molecule, float] = {"nucleotide": 9_000.0, "protein": 559.0}
WIDTHS: dict[Molecule, int] = {"nucleotide": 768, "protein": 2560}
# A device goes on with the next task while the last one is written: so long a gap is no waiting.
WRITING_SECONDS = 0.5


@dataclass(frozen=True)
class SleepingStage(EmbeddingStage):
    """Writes features of the real size after as much time as a device would need."""

    def open(self, device: Device) -> Session:
        """Open it at once."""
        return SleepingSession(self)


class SleepingSession(Session):
    """A device that is free again at ``free``, in seconds of the monotonic clock."""

    def __init__(self, stage: SleepingStage) -> None:
        self._stage, self.facts, self._free = stage, {}, 0.0

    def compute(self, task: Task, report: ReportProgress) -> Callable[[], TaskResult]:
        """Sleep as long as the device would compute."""
        names = [name for name, _ in read_fasta(task.inputs[0])]
        now, molecule = time.monotonic(), self._stage.molecule
        begun = self._free if now - self._free < WRITING_SECONDS else now
        self._free = begun + len(names) / RATES[molecule]
        time.sleep(max(0.0, self._free - now))
        report(len(names), task.weight)
        data = torch.full((len(names), WIDTHS[molecule]), 0.25)

        def write() -> TaskResult:
            content = encode_features(Features(names, data), molecule)
            output = self._stage.disk.save(task.outputs[0], content, len(names))
            return TaskResult(task, (output,))

        return write


class SleepingEncoders(EncoderSetup):
    """Encoders of the real widths that need no models."""

    def stages(self, layout, disk, machine):  # type: ignore[no-untyped-def]
        """Return the stages of sleeping devices."""
        made = super().stages(layout, disk, machine)
        values = ({f.name: getattr(stage, f.name) for f in fields(stage)} for stage in made)
        return [SleepingStage(**each) for each in values]


def make_input(path: Path, frames: int, bases: int) -> None:
    """Write records of sense codons, with about as many chunks of 500 bases as ``frames``."""
    rng = random.Random(7)
    pool = "".join(rng.choices(SENSE, k=10_000_000))  # few records are the same
    with path.open("w") as out:
        for number in range(frames * CHUNK // bases):
            start = 3 * rng.randrange((len(pool) - bases) // 3)
            out.write(f">r{number}\n{pool[start : start + bases]}\n")


def make_models(folder: Path) -> prepare.Models:
    """Return encoders that sleep, and a classifier of the released size with random weights."""
    path = folder / "classifier.safetensors"
    path.write_bytes(classifier(sum(WIDTHS.values())))
    sources = {m: EncoderSource(f"toy-{m}", "sleeping", None, (), m, WIDTHS[m]) for m in RATES}
    return prepare.Models(SleepingEncoders(sources, "fp32", 1024), inspect_classifier(path))


def measure(source: Path, folder: Path, executor: Executor, models: prepare.Models) -> None:
    """Carry out a run and print the seconds of its stages."""
    started: dict[str, tuple[float, float]] = {}
    seconds: dict[str, tuple[float, float]] = {}
    frames = 0

    def since(begin: tuple[float, float]) -> tuple[float, float]:
        """Return the seconds of the clock, and of this process on processors."""
        return time.perf_counter() - begin[0], time.process_time() - begin[1]

    def note(event: Event) -> None:
        nonlocal frames
        if isinstance(event, StageStarted):
            started[event.stage] = since((0, 0))
            frames = event.sequences if event.stage == "protein_embeddings" else frames
        if isinstance(event, StageFinished):
            seconds[event.stage] = since(started[event.stage])

    analysis = AnalysisSettings(model_type="toy", chunk_length=CHUNK, dedup=True)
    machine = MachineSettings(device="cpu")
    # What is classified as viral would take its own time.
    thresholds = Thresholds(min_score=1.0, genes=False)
    request = PredictionRequest(str(source), folder, Configuration(analysis, thresholds, machine))
    began = since((0, 0))
    with patch.object(predict, "find_models", lambda *_: models):
        predict.run_prediction(request, note, executor=executor)
    elapsed, processor = since(began)
    workers = len(executor.pool.workers)
    computing = sum(frames / rate for rate in RATES.values())
    idle = elapsed - computing / workers
    beside = sum(own for stage, (_, own) in seconds.items() if stage.endswith("_embeddings"))
    for name, times in (*seconds.items(), ("without a device at work", (idle, processor - beside))):
        clock, own = (f"{1e6 * each / frames:8.1f}" for each in times)
        print(f"{name:24} {times[0]:8.2f} s {clock} us per frame, of a processor {own}")
    print(
        f"{frames:,} frames, {workers} devices: {elapsed:.1f} s, gain {(computing + idle) / elapsed:.2f}"
    )


def main() -> None:
    """Measure a run of the asked size, after a small one that starts the workers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--bases", type=int, default=500, help="of a record")
    parser.add_argument("--keep", type=Path, help="folder of the runs, which stays")
    options = parser.parse_args()
    pool = ProcessPool([Device("cpu", n) for n in range(options.devices)], tokenizer_threads=1)
    executor = Executor(pool, host_threads=os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        models = make_models(folder)
        for name, frames in (("warm", 2_000 * options.devices), ("run", options.frames)):
            source = folder / f"{name}.fa"
            make_input(source, frames, options.bases)
            measure(source, folder / name, executor, models)
    executor.close()


if __name__ == "__main__":
    main()
