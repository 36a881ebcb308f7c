"""Measure a whole run on devices that only sleep, as long as an H200 would compute.

    python -m benchmarks.whole_run [--frames 200000]

Everything but the encoders is real: the host stages, the pool with a process per device, features of the
real widths on the disk, receipts, the classifier of the released size. Workers are started before
the clock. ``gain`` is how many times faster the run is than one on a single device with the same host.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from unittest.mock import patch

import torch

from benchmarks.models import CHUNK, classifier, write_contigs
from virnucpro.classifier.files import inspect_classifier
from virnucpro.configuration import Configuration
from virnucpro.contracts import Device, Molecule, ReportProgress, Session, Task, TaskResult
from virnucpro.encoders.family import EncoderSource
from virnucpro.events import Event, StageFinished, StageStarted
from virnucpro.io.fasta import read_fasta
from virnucpro.run import predict, prepare
from virnucpro.run.request import PredictionRequest
from virnucpro.settings import AnalysisSettings, MachineSettings, Thresholds
from virnucpro.stages.embedding import EmbeddingStage, EncoderSetup
from virnucpro.store.features import Features, encode_features
from virnucpro.workers.processes import ProcessPool
from virnucpro.workers.scheduler import Workers

# Sequences per second of one H200 through `predict` (GPU_OPTIMIZATION.md), and widths.
RATES: dict[Molecule, float] = {"nucleotide": 9_000.0, "protein": 559.0}
WIDTHS: dict[Molecule, int] = {"nucleotide": 768, "protein": 2560}
DEVICES = 8
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


def make_models(folder: Path) -> prepare.Models:
    """Return encoders that sleep, and a classifier of the released size with random weights."""
    path = folder / "classifier.safetensors"
    path.write_bytes(classifier(sum(WIDTHS.values())))
    sources = {m: EncoderSource(f"toy-{m}", "sleeping", None, (), m, WIDTHS[m]) for m in RATES}
    encoders = SleepingEncoders(sources, "fp32", 1024)
    return prepare.Models(encoders, inspect_classifier(path), {})


def measure(source: Path, folder: Path, workers: Workers, models: prepare.Models) -> None:
    """Carry out a run and print the seconds of its stages."""
    started: dict[str, float] = {}
    seconds: dict[str, float] = {}
    frames = 0

    def note(event: Event) -> None:
        nonlocal frames
        if isinstance(event, StageStarted):
            started[event.stage] = time.perf_counter()
            frames = event.sequences if event.stage == "protein_embeddings" else frames
        if isinstance(event, StageFinished):
            seconds[event.stage] = time.perf_counter() - started[event.stage]

    analysis = AnalysisSettings(model_type="toy", chunk_length=CHUNK, dedup=True)
    machine = MachineSettings(device="cpu")
    # What is classified as viral would take its own time.
    thresholds = Thresholds(min_score=1.0, genes=False)
    request = PredictionRequest(str(source), folder, Configuration(analysis, thresholds, machine))
    began = time.perf_counter()
    with patch.object(predict, "find_models", lambda *_: models):
        predict.run_prediction(request, note, workers=workers)
    elapsed = time.perf_counter() - began
    computing = sum(frames / rate for rate in RATES.values())
    idle = elapsed - computing / DEVICES
    for name, spent in (*seconds.items(), ("without a device at work", idle)):
        print(f"{name:24} {spent:8.2f} s {1e6 * spent / frames:8.1f} us per frame")
    gain = (computing + idle) / elapsed
    print(f"{frames:,} frames, {DEVICES} devices: {elapsed:.1f} s, gain {gain:.2f}")


def main() -> None:
    """Measure a run of the asked size, after a small one that starts the workers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=200_000)
    options = parser.parse_args()
    pool = ProcessPool([Device("cpu", n) for n in range(DEVICES)], tokenizer_threads=1)
    workers = Workers(pool)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        models = make_models(folder)
        for name, frames in (("warm", 2_000 * DEVICES), ("run", options.frames)):
            source = write_contigs(folder / f"{name}.fa", frames, longest=CHUNK)
            measure(source, folder / name, workers, models)
    workers.close()


if __name__ == "__main__":
    main()
