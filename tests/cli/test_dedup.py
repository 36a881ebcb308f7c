"""Identical sequences are embedded once; results are those of a run that embeds each of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Call
from tests.forked import run_forked
from virnucpro.io.fasta import read_fasta

Calling = Callable[..., Call]
TOLERANCE = 1e-5
TABLES = ("in_chunks.tsv", "in_contigs.tsv", "in_merged/prediction_results.txt")
RECORDS = 300


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reads of which many are the same, also as reverse complements and as parts of longer ones."""
    path = tmp_path_factory.mktemp("input") / "in.fa"
    chance = random.Random(5)
    reads = ["".join(chance.choices("ACGT", k=k)) for k in range(60, 140)]
    complement = str.maketrans("ACGT", "TGCA")
    reads += [read.translate(complement)[::-1] for read in reads[:30]]
    drawn = [*reads, *chance.choices(reads, k=RECORDS - len(reads))]
    path.write_text("".join(f">r{n}\n{read}\n" for n, read in enumerate(drawn)))
    return path


def _options(source: Path, out: Path) -> tuple[object, ...]:
    config = out.parent / f"{out.name}.yaml"
    config.write_text("prediction: {sequences_per_file: 40}\n")
    return ("predict", source, "-o", out, "-m", "toy", "-e", "150", "-c", config)


@pytest.fixture(scope="module")
def once(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the defaults, with its intermediate files."""
    out = tmp_path_factory.mktemp("once") / "out"
    done = run_forked(*_options(source, out), "-k", "--device", "cpu")
    assert done.code == 0, done.err
    assert json.loads((out / "in_run.json").read_bytes())["counts"]["identical_frames"] > 0
    return out


@pytest.fixture(scope="module")
def each(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that embeds every sequence."""
    out = tmp_path_factory.mktemp("each") / "out"
    done = run_forked(*_options(source, out), "-k", "--device", "cpu", "--no-dedup")
    assert done.code == 0, done.err
    assert "same as an earlier one" not in done.out
    return out


def _counts(out: Path) -> dict[str, int]:
    counts: dict[str, int] = json.loads((out / "in_run.json").read_bytes())["counts"]
    return counts


def _cells(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


def _frames(out: Path, pattern: str) -> list[tuple[str, str]]:
    return [frame for path in sorted(out.glob(pattern)) for frame in read_fasta(path)]


def test_results_are_those_of_a_run_that_embeds_each(once: Path, each: Path) -> None:
    for table in TABLES:
        for ours, theirs in zip(_cells(once / table), _cells(each / table), strict=True):
            for our, their in zip(ours, theirs, strict=True):
                assert our == their or abs(float(our) - float(their)) < TOLERANCE


def test_no_two_frames_that_are_embedded_are_the_same(once: Path, each: Path) -> None:
    whole = _frames(each, "in_nucleotide/output_*.fa")
    assert sorted(whole) == sorted(_frames(once, "in_nucleotide.fa"))
    embedded = _frames(once, "in_nucleotide/output_*.fa")
    assert len(embedded) == len({text for _, text in embedded}) == len({text for _, text in whole})
    copies = (once / ".checkpoints/runs/in/state/copies.tsv").read_text().count("\n")
    assert copies == len(whole) - len(embedded) == _counts(once)["identical_frames"]
    assert copies > len(whole) / 2
    assert f"{copies:,} of {len(whole):,} (" in (once / "in_report.html").read_text()
    assert "identical_frames" not in _counts(each)
