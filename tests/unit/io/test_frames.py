"""The chunk rule, against the shifts of the original, and six frames, against Biopython."""

from __future__ import annotations

import random
from math import ceil, floor
from pathlib import Path

import pytest
from Bio.Data.CodonTable import standard_dna_table
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.io import frames
from virnucpro.io.frames import (
    FRAME_LABELS,
    WHOLE_LABEL,
    Frames,
    chunk_id,
    chunk_of,
    chunk_spans,
    open_frames,
    record_of,
    whole_chunks,
)

DEMO = Path(frames.__file__).parents[1] / "data/example.fa"  # phages, a virus, bacteria


def original(length: int, chunk_length: int) -> list[tuple[int, int]]:
    count = ceil(length / chunk_length)
    spare = count * chunk_length - length
    low = floor(spare / count)
    longer = spare - low * (count - 1)
    shifts = [low + 1] * longer + [low] * (count - 1 - longer) + [0]
    spans, start = [], 0
    for k in range(count):
        spans.append((start, min(start + chunk_length, length)))
        start += chunk_length - shifts[k]
    return spans


@given(st.integers(1, 5000), st.integers(1, 600))
def test_same_as_the_original(length, chunk_length):
    assert chunk_spans(0, chunk_length) == []
    assert chunk_spans(length, chunk_length) == original(length, chunk_length)


@pytest.mark.parametrize("record_id", ["a", "a_chunk_1", "a_chunk_1F1", "_chunk_", "é|x", "3"])
def test_ids_can_be_taken_apart(record_id):
    assert record_of(chunk_id(record_id, 12)) == (record_id, 12)


@pytest.mark.parametrize("name", ["a", "a_chunk_", "a_chunk_x", "a_chunk_1F1", "a_chunk_²"])
def test_not_a_chunk_id(name):
    with pytest.raises(ValueError, match="not the id of a chunk"):
        record_of(name)


CODE = {**standard_dna_table.forward_table, **dict.fromkeys(standard_dna_table.stop_codons, "*")}


def translated(chunk: str) -> tuple[str, list[tuple[str, str, str]]]:
    """As `formats.md` says it, without look-up tables over windows: the status and the frames."""
    chunk = chunk.upper()
    pair = {"A": "T", "C": "G", "G": "C", "T": "A"}
    reverse = "".join(pair.get(letter, letter) for letter in reversed(chunk))
    frames, any_codon = [], False
    for label in FRAME_LABELS:
        strand, shift = (chunk if label[0] == "F" else reverse), int(label[1]) - 1
        codons = [strand[i : i + 3] for i in range(shift, len(strand), 3)]
        protein = "".join(CODE.get(codon, "") for codon in codons)
        any_codon |= bool(protein)
        if protein and "*" not in protein:
            nucleotide = strand[shift : shift + 3 * len(protein) + 1]
            frames.append((label, nucleotide, protein))
    if frames:
        return "framed", frames
    if len(chunk) < 3:
        return "too_short", []
    return "no_open_frame" if any_codon else "ambiguous", []


def by_chunk(found: Frames) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """The statuses and the frames of the chunks of a batch."""
    chunks = [(status, []) for status in found.statuses]
    for chunk, *frame in zip(*found[1:], strict=True):
        chunks[chunk][1].append(tuple(frame))
    return chunks


LETTERS = st.one_of(
    st.text("ACGT", max_size=80),
    st.text("ACG", max_size=40),  # no T: most frames of one strand stay open
    st.text("ACGTacgtNnRYSWKMBDHVrU", max_size=60),
    st.text("NR", max_size=6),
)


@given(st.lists(LETTERS, max_size=12))
def test_same_as_codon_by_codon(chunks):
    assert by_chunk(open_frames(chunks)) == [translated(chunk) for chunk in chunks]


def test_chunk_of():
    assert chunk_of("a_chunk_1F1_chunk_12R3") == "a_chunk_1F1_chunk_12"
    assert chunk_of("c_chunk_3" + WHOLE_LABEL) == "c_chunk_3"


CLOSED = "TAATTAGTTGACTAACTAGTCAGCGATCCGGTACGCATTTCG"  # a stop codon in every frame


def test_a_chunk_without_an_open_frame_is_read():
    assert open_frames([CLOSED]).statuses == ["no_open_frame"]
    found = whole_chunks([CLOSED.lower()])
    assert by_chunk(found) == [("framed", [(WHOLE_LABEL, CLOSED, "")])]


def test_what_says_nothing_is_not_read():
    short, known = "ACGTA" * 5, "ACGTACCTGAGTTCATGCAAGGCTTACGAT"
    gaps = ["N" * 500, known[1:] + "N" * 99, known + "N" * 99, "N".join(known)]
    results = whole_chunks([short, known, *gaps, ""])
    assert results.nucleotides == [known, known + "N"]
    assert results.statuses == [
        "too_short",
        "framed",
        "ambiguous",
        "ambiguous",
        "framed",
        "ambiguous",
        "too_short",
    ]
    assert by_chunk(whole_chunks([])) == []


def drawn(length: int, draw: random.Random) -> str:
    return "".join(draw.choices("ACGT", k=length))


@pytest.mark.parametrize("length", [100, 150, 500])
@pytest.mark.parametrize(
    ("unit", "diverged"),
    # HSat2 and HSat3 of human are diverged copies of GGAAT (Altemose 2014, PLoS Comput Biol 10:e1003628)
    [("G", 0.0), ("ACG", 0.0), ("GGAAT", 0.15), (CLOSED[:30], 0.1), (170, 0.05)],
)
def test_tandem_repeats_are_not_read(unit, diverged, length):
    draw = random.Random(0)
    chunks = []
    for _ in range(20):
        bases = (drawn(unit, draw) if isinstance(unit, int) else unit) * length
        changed = [draw.choice("ACGT") if draw.random() < diverged else b for b in bases[:length]]
        chunks += ["".join(changed).lower(), drawn(length, draw)]
    statuses = whole_chunks(chunks).statuses
    assert statuses[1::2] == 20 * ["framed"]
    # Nothing of a unit is repeated in a chunk that is shorter.
    expected = "framed" if isinstance(unit, int) and length < 2 * unit else "repetitive"
    assert statuses[::2] == 20 * [expected]


def test_phages_viruses_and_bacteria_are_read():
    for record in DEMO.read_text().split(">")[1:7]:
        sequence = "".join(record.splitlines()[1:])
        chunks = [sequence[start : start + 300] for start in range(0, len(sequence), 300)]
        assert set(whole_chunks(chunks).statuses) == {"framed"}


SHARES = st.text("ACGTNR", max_size=90).map(lambda text: text * (1 + len(text) % 3))


@given(st.lists(st.one_of(SHARES, st.text("ACGTacgtn", max_size=200)), max_size=12))
def test_whole_chunks_are_judged_one_by_one(chunks):
    assert by_chunk(whole_chunks(chunks)) == [
        part for chunk in chunks for part in by_chunk(whole_chunks([chunk]))
    ]
