"""A prediction of the whole pipeline whose protein encoder fails on some frames."""

from __future__ import annotations

from pathlib import Path

from virnucpro.contracts import Device
from virnucpro.events import Event
from virnucpro.executors.executor import Executor
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest
from virnucpro.settings import AnalysisSettings, MachineSettings

DEVICES = [Device("cpu", 0), Device("cpu", 1)]
POISON = ("r3_chunk_1F1", "r300_chunk_1F1")
CODONS = ["GCT", "ACC", "GGA", "TTC", "CAT", "AAG", "CTG", "GAT"]


def ignore(event: Event) -> None:
    """Nobody watches."""


def make_request(source: Path, out: Path, records: int = 400) -> PredictionRequest:
    """Write an input of so many records, and return what predicts it."""
    lines = (
        f">r{n}\n{''.join(CODONS[(n * 7 + i * i) % 8] for i in range(60 + n % 9))}"
        f"{''.join(CODONS[n // 8**digit % 8] for digit in range(3))}\n"  # each is another one
        for n in range(records)
    )
    if not source.exists():
        source.write_text("".join(lines))
    analysis = AnalysisSettings(model_type="toy", chunk_length=200, sequences_per_file=100)
    return PredictionRequest(str(source), out, analysis, MachineSettings(device="cpu"), resume=True)


def poisoned_run(request: PredictionRequest, executor: Executor) -> int:
    """Carry out a run whose executor fails on ``POISON``; returns the number of failed records."""
    try:
        return run_prediction(request, ignore, executor=executor).failed_records
    finally:
        executor.close()
