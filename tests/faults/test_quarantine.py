"""Sequences that cannot be embedded, through the whole pipeline with the real embedding stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

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
from virnucpro.run.engine import run
from virnucpro.run.failures import record_failures
from virnucpro.run.predict import execute
from virnucpro.run.prepare import Request, prepare
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.stages.chunking import stamp
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.ledger import Ledger
from virnucpro.store.receipts import failed_ids

CPU = Device("cpu", threads=1)
POISON = ("r3_chunk_1F1", "r300_chunk_1F1")


@dataclass(frozen=True)
class Poisoned:
    """A stage whose session raises on the poisonous sequences; all else is that of the stage."""

    stage: Stage

    def __getattr__(self, name: str) -> object:
        return getattr(self.stage, name)

    def open(self, device: Device) -> Session:
        session = self.stage.open(device)

        def call(task: Task, report: ReportProgress) -> TaskResult:
            found = [n for n, _ in read_fasta(task.inputs[0], *(task.span or (0, None)))]
            if any(name in POISON for name in found):
                raise ValueError("cannot embed this")
            return session(task, report)

        return call


class PoisonedExecutor(Executor):
    """Runs ESM-2 poisoned, every other stage unchanged."""

    def run(
        self, stage: Stage, tasks: Iterable[Task], emit: Callable[[Event], None]
    ) -> Iterator[TaskOutcome]:
        poisoned: Stage = Poisoned(stage) if stage.name == "esm" else stage  # type: ignore[assignment]
        return super().run(poisoned, tasks, emit)


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    source = tmp_path / "in.fa"
    codons = ["GCT", "ACC", "GGA", "TTC", "CAT", "AAG", "CTG", "GAT"]
    records = (
        f">r{n}\n{''.join(codons[(n * 7 + i * i) % 8] for i in range(60 + n % 9))}\n"
        for n in range(400)
    )
    source.write_text("".join(records))
    analysis = AnalysisSettings(model_type="toy", chunk_length=200, sequences_per_file=900)
    return Request(
        str(source), tmp_path / "out", analysis, MachineSettings(device="cpu"), resume=True
    )


def _ignore(event: Event) -> None:
    """Nobody watches."""


def _run_poisoned(request: Request) -> int:
    layout, disk = request.layout, Disk()
    job = prepare(request, layout, [CPU], disk, _ignore)
    job = replace(job, seen=stamp(job.source))
    layout.state.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(layout, disk, {job.source: sha256_of(job.source)})
    run(job, ledger, PoisonedExecutor(LocalPool(CPU), host_threads=1), _ignore)
    lost = {name for _, r in ledger.receipts("esm") for name in failed_ids(r.facts)}
    assert lost == set(POISON)
    return record_failures(layout, disk, job.source, str(job.source), ledger)


RESULTS = ("in_chunks.tsv", "in_contigs.tsv", "in_virus.fna", "in_merged/prediction_results.txt")


def test_the_poisonous_are_set_aside_and_resume_completes_the_run(
    request_: Request, tmp_path: Path
) -> None:
    assert _run_poisoned(request_) == 2
    out = tmp_path / "out"
    scored = [line.split("\t")[0] for line in (out / RESULTS[3]).read_text().splitlines()[1:]]
    frames = [name for name, _ in read_fasta(out / "in_protein.faa")]
    assert scored == [name for name in frames if name not in POISON]
    table = (out / "failed_files.txt").read_text()
    assert all(name in table for name in POISON)
    assert [n for n, _ in read_fasta(out / "in_failed_sequences.fa")] == ["r3", "r300"]
    summary = execute(request_, _ignore)  # the encoder is well again
    assert summary.failed_records == 0
    assert not (out / "failed_files.txt").exists()
    assert not (out / "in_failed_sequences.fa").exists()
    undisturbed = replace(request_, output_dir=tmp_path / "undisturbed")
    execute(undisturbed, _ignore)
    for name in RESULTS:
        assert (out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


def test_failed_sequences_are_an_input_of_their_own(request_: Request, tmp_path: Path) -> None:
    _run_poisoned(request_)
    failed = tmp_path / "out/in_failed_sequences.fa"
    summary = execute(replace(request_, source=str(failed)), _ignore)
    assert (summary.records, summary.failed_records) == (2, 0)
    assert (tmp_path / "out/in_failed_sequences_contigs.tsv").exists()
    assert failed.exists()
