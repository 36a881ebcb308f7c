"""Sequences that cannot be embedded, through the whole pipeline with the real embedding stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.poisoned import PoisonedExecutor
from tests.contract.pools import ENCODER_POOLS, POOLS
from virnucpro.configuration import Configuration
from virnucpro.contracts import Device
from virnucpro.events import Event
from virnucpro.io.fasta import read_fasta
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest

DEVICES = [Device("cpu", 0), Device("cpu", 1)]
POISON = ("r3_chunk_1F1", "r300_chunk_1F1")
CODONS = ["GCT", "ACC", "GGA", "TTC", "CAT", "AAG", "CTG", "GAT"]


def ignore(event: Event) -> None:
    """Nobody watches."""


@pytest.fixture
def request_(tmp_path: Path) -> PredictionRequest:
    lines = (
        f">r{n}\n{''.join(CODONS[(n * 7 + i * i) % 8] for i in range(60 + n % 9))}"
        f"{''.join(CODONS[n // 8**digit % 8] for digit in range(3))}\n"  # each is another one
        for n in range(400)
    )
    source, out = tmp_path / "in.fa", tmp_path / "out"
    source.write_text("".join(lines))
    values = {"model_type": "toy", "chunk_length": 200, "sequences_per_file": 100, "device": "cpu"}
    return PredictionRequest(str(source), out, Configuration().with_values(values), resume=True)


def _run_poisoned(request: PredictionRequest, pool: str) -> int:
    """Run a prediction in which the protein encoder fails on two frames."""
    executor = PoisonedExecutor(POOLS[pool].make(DEVICES), POISON)
    try:
        return run_prediction(request, ignore, executor=executor).failed_records
    finally:
        executor.close()


RESULTS = ("in_chunks.tsv", "in_contigs.tsv", "in_virus.fna", "in_merged/prediction_results.txt")


@pytest.mark.parametrize("pool", ENCODER_POOLS)
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
    summary = run_prediction(request_, ignore)  # the encoder is well again
    assert summary.failed_records == 0
    assert not (out / "failed_files.txt").exists()
    assert not (out / "in_failed_sequences.fa").exists()
    undisturbed = replace(request_, output_dir=tmp_path / "undisturbed")
    run_prediction(undisturbed, ignore)
    for name in RESULTS:
        assert (out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


def test_failed_sequences_are_an_input_of_their_own(
    request_: PredictionRequest, tmp_path: Path
) -> None:
    _run_poisoned(request_, ENCODER_POOLS[0])
    failed = tmp_path / "out/in_failed_sequences.fa"
    summary = run_prediction(replace(request_, source=str(failed)), ignore)
    assert (summary.results.records, summary.failed_records) == (2, 0)
    assert (tmp_path / "out/in_failed_sequences_contigs.tsv").exists()
    assert failed.exists()


def test_what_a_kill_left_of_the_table_of_failures_is_removed(
    request_: PredictionRequest, tmp_path: Path
) -> None:
    """It is shared by all runs: the sweep of the files of one run does not know it."""
    _run_poisoned(request_, ENCODER_POOLS[0])
    stray = tmp_path / "out/.failed_files.txt.elsewhere.999999999.tmp"
    stray.touch()
    run_prediction(request_, ignore)
    assert not stray.exists()
