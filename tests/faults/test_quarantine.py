"""Sequences that cannot be embedded, through the whole pipeline."""

from __future__ import annotations

import pytest

from tests.cli.inputs import open_bases
from tests.faults.struck import is_poisonous
from tests.faults.survival import results
from tests.forked import run_forked
from virnucpro.io.fasta import read_fasta
from virnucpro.io.frames import chunk_of, record_of


@pytest.mark.parametrize("where", [("-d", "cpu"), ("--cpu-workers", 2)])
def test_the_poisonous_are_set_aside_and_resume_completes_the_run(tmp_path, where):
    source, out, config = (tmp_path / name for name in ("in.fa", "out", "c.yaml"))
    source.write_text("".join(f">r{n}\n{open_bases(63, n)}\n" for n in range(120)))
    config.write_text("prediction: {sequences_per_file: 100}")
    command = ("predict", source, "-m", "toy", "-e", 200, "-c", config, *where, "-o")
    done = run_forked("none/failing", 0, *command, out, module="tests.faults.struck")
    assert done.code == 2
    files = (out / "in_protein.faa", out / "in_nucleotide.fa")
    poison = {name for path in files for name, text in read_fasta(path) if is_poisonous(text)}
    scored = (out / "in_merged/prediction_results.txt").read_text().splitlines()[1:]
    frames = [name for name, _ in read_fasta(files[0])]
    assert (
        [row.split("\t")[0] for row in scored] == [n for n in frames if n not in poison] != frames
    )
    table = (out / "failed_files.txt").read_text()
    assert all(name in table for name in poison)
    failed = {record_of(chunk_of(name))[0] for name in poison}
    assert {name for name, _ in read_fasta(out / "in_failed_sequences.fa")} == failed
    stray = out / ".failed_files.txt.elsewhere.999999999.tmp"  # of a kill; all runs share it
    stray.touch()
    assert run_forked(*command, out).code == 0
    assert run_forked(*command, tmp_path / "undisturbed").code == 0
    assert results(out) == results(tmp_path / "undisturbed")
