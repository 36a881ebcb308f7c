"""Sequences that cannot be embedded, through the whole pipeline with the real embedding stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.poisoned import PoisonedExecutor
from tests.contract.pools import ANY_POOL, POOLS
from virnucpro.contracts import Device
from virnucpro.events import Event
from virnucpro.io.fasta import read_fasta
from virnucpro.run.engine import Run, admitted_state, execute
from virnucpro.run.failures import update_failure_table, write_failed_records
from virnucpro.run.predict import run_prediction
from virnucpro.run.prepare import PredictionRequest, prepare
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.stages.chunking import input_stamp
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.state import RunState

DEVICES = [Device("cpu", 0), Device("cpu", 1)]
POISON = ("r3_chunk_1F1", "r300_chunk_1F1")


@pytest.fixture
def request_(tmp_path: Path) -> PredictionRequest:
    source = tmp_path / "in.fa"
    codons = ["GCT", "ACC", "GGA", "TTC", "CAT", "AAG", "CTG", "GAT"]
    records = (
        f">r{n}\n{''.join(codons[(n * 7 + i * i) % 8] for i in range(60 + n % 9))}\n"
        for n in range(400)
    )
    source.write_text("".join(records))
    analysis = AnalysisSettings(model_type="toy", chunk_length=200, sequences_per_file=900)
    return PredictionRequest(
        str(source), tmp_path / "out", analysis, MachineSettings(device="cpu"), resume=True
    )


def _ignore(event: Event) -> None:
    """Nobody watches."""


def _run_poisoned(request: PredictionRequest, pool: str) -> int:
    """Run a prediction in which the protein encoder fails on two frames."""
    layout, disk = request.layout, Disk()
    prediction = prepare(request, layout, DEVICES, disk, _ignore)
    source, digest = prediction.source, sha256_of(prediction.source)
    state = RunState(str(source), {"input": digest, **prediction.identity()})
    state = admitted_state(layout, disk, state, _ignore, resume=True, force=False)
    run = Run(layout, disk, prediction.stages(input_stamp(source), {}), state, {source: digest})
    executor = PoisonedExecutor(POOLS[pool].make(DEVICES), POISON)
    try:
        outcome = execute(run, executor, _ignore)
    finally:
        executor.close()
    assert {name for failure in outcome.failures for name in failure.ids} == set(POISON)
    update_failure_table(layout, disk, str(source), outcome.failures)
    return write_failed_records(layout, disk, source, outcome.failures)


RESULTS = ("in_chunks.tsv", "in_contigs.tsv", "in_virus.fna", "in_merged/prediction_results.txt")


@pytest.mark.parametrize("pool", ANY_POOL)
def test_the_poisonous_are_set_aside_and_resume_completes_the_run(
    request_: PredictionRequest, tmp_path: Path, pool: str
) -> None:
    assert _run_poisoned(request_, pool) == 2
    out = tmp_path / "out"
    scored = [line.split("\t")[0] for line in (out / RESULTS[3]).read_text().splitlines()[1:]]
    frames = [name for name, _ in read_fasta(out / "in_protein.faa")]
    assert scored == [name for name in frames if name not in POISON]
    table = (out / "failed_files.txt").read_text()
    assert all(name in table for name in POISON)
    assert [n for n, _ in read_fasta(out / "in_failed_sequences.fa")] == ["r3", "r300"]
    summary = run_prediction(request_, _ignore)  # the encoder is well again
    assert summary.failed_records == 0
    assert not (out / "failed_files.txt").exists()
    assert not (out / "in_failed_sequences.fa").exists()
    undisturbed = replace(request_, output_dir=tmp_path / "undisturbed")
    run_prediction(undisturbed, _ignore)
    for name in RESULTS:
        assert (out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


def test_failed_sequences_are_an_input_of_their_own(
    request_: PredictionRequest, tmp_path: Path
) -> None:
    _run_poisoned(request_, ANY_POOL[0])
    failed = tmp_path / "out/in_failed_sequences.fa"
    summary = run_prediction(replace(request_, source=str(failed)), _ignore)
    assert (summary.records, summary.failed_records) == (2, 0)
    assert (tmp_path / "out/in_failed_sequences_contigs.tsv").exists()
    assert failed.exists()
