"""Sequences that cannot be embedded, through the whole pipeline with the real embedding stage."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from tests.cli.inputs import open_bases, toy_request
from tests.contract.poisoned import PoisonedWorkers
from tests.contract.pools import ENCODER_POOLS, POOLS
from virnucpro.contracts import Device
from virnucpro.io.fasta import read_fasta
from virnucpro.run.predict import run_prediction

DEVICES = [Device("cpu", 0), Device("cpu", 1)]
POISON = ("r3_chunk_1F1", "r100_chunk_1F1")
RESULTS = ("in_chunks.tsv", "in_contigs.tsv", "in_virus.fna", "in_merged/prediction_results.txt")


@pytest.mark.parametrize("pool", ENCODER_POOLS)
def test_the_poisonous_are_set_aside_and_resume_completes_the_run(tmp_path, pool):
    """The protein encoder fails on two frames, and then is well again."""
    source, out = tmp_path / "in.fa", tmp_path / "out"
    source.write_text("".join(f">r{n}\n{open_bases(63, n)}\n" for n in range(120)))
    request = toy_request(source, out, chunk_length=200, sequences_per_file=100)
    with closing(PoisonedWorkers(POOLS[pool](DEVICES), POISON)) as workers:
        assert run_prediction(request, print, workers=workers).failed_records == 2
    scored = [line.split("\t")[0] for line in (out / RESULTS[3]).read_text().splitlines()[1:]]
    frames = [name for name, _ in read_fasta(out / "in_protein.faa")]
    assert scored == [name for name in frames if name not in POISON]
    table = (out / "failed_files.txt").read_text()
    assert all(name in table for name in POISON)
    assert [n for n, _ in read_fasta(out / "in_failed_sequences.fa")] == ["r3", "r100"]
    stray = out / ".failed_files.txt.elsewhere.999999999.tmp"  # of a kill; all runs share it
    stray.touch()
    assert run_prediction(request, print).failed_records == 0
    assert not stray.exists()
    assert not (out / "failed_files.txt").exists()
    assert not (out / "in_failed_sequences.fa").exists()
    run_prediction(replace(request, output_dir=tmp_path / "undisturbed"), print)
    for name in RESULTS:
        assert (out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()
