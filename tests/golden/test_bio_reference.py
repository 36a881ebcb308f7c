"""Chunks and frames of the original VirNucPro, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from virnucpro.io.fasta import read_fasta
from virnucpro.io.frames import chunk_id, chunk_spans, open_frames
from virnucpro.io.records import read_records


@pytest.fixture
def folder(reference: Path) -> Path:
    return reference / "original_500"


def chunks(folder: Path) -> list[tuple[str, str]]:
    return [
        (chunk_id(record.id, number), record.sequence[start:end])
        for record in read_records(folder / "sample.fa")
        for number, (start, end) in enumerate(chunk_spans(len(record.sequence), 500), 1)
    ]


def test_chunks(folder):
    assert chunks(folder) == list(read_fasta(folder / "sample_chunked500.fa"))


@pytest.mark.parametrize("kind", ["nucleotide.fa", "protein.faa"])
def test_frames(folder, kind):
    named = chunks(folder)
    ours = [
        (name + frame.label, frame.nucleotide if kind == "nucleotide.fa" else frame.protein)
        for (name, _), result in zip(named, open_frames([c for _, c in named]), strict=True)
        for frame in result.frames
    ]
    assert ours == list(read_fasta(folder / f"sample_identified_{kind}"))
