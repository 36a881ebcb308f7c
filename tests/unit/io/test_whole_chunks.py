"""Chunks that are read whole, with or without an open frame."""

from __future__ import annotations

from virnucpro.io.frames import WHOLE_LABEL, chunk_of, open_frames, whole_chunks
from virnucpro.settings import SHORTEST_WHOLE

CLOSED = "TAATTAGTTGACTAACTAGTCA" * 5  # a stop codon in every frame


def test_a_chunk_without_an_open_frame_is_read():
    assert open_frames([CLOSED])[0].status == "no_open_frame"
    (chunk,) = whole_chunks([CLOSED.lower()])
    assert chunk.status == "framed"
    assert [(f.label, f.nucleotide, f.protein) for f in chunk.frames] == [(WHOLE_LABEL, CLOSED, "")]


def test_what_says_nothing_is_not_read():
    short, known = "ACGTA" * 5, "ACGTA" * 6
    results = whole_chunks([short, known, "N" * 500, known[1:] + "N" * 99, known + "N" * 99, ""])
    assert SHORTEST_WHOLE == 30
    assert [chunk.status for chunk in results] == [
        "too_short",
        "framed",
        "ambiguous",
        "ambiguous",
        "framed",
        "too_short",
    ]
    assert whole_chunks([]) == []


def test_the_chunk_of_its_id():
    assert chunk_of("c_chunk_3" + WHOLE_LABEL) == "c_chunk_3"
