"""The assignment of taxa to parts: by name, never by chunk, and without near-identical genomes.

A 31-mer and its reverse complement count as one: the smaller number of the two. Only 31-mers whose
hash lies below 1/16 of its range are kept (FracMinHash, the "scaled" of sourmash: Irber et al.
2022, doi:10.1101/2022.01.11.475838). They are the same ones in every genome, so the shared fraction
of the samples estimates the shared fraction of the genomes. A genome of 2,000 bases has some 120
sampled 31-mers. If it shares a tenth of them with others, its sample shows more than 5 % with a
probability of 0.97 (binomial); at 500 bases, with 29 sampled 31-mers, the probability is 0.80.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from virnucpro.errors import InputError
from virnucpro.training.data.dataset import Part

if TYPE_CHECKING:
    import pandas as pd

_STRICTEST_FIRST: tuple[Part, ...] = ("test", "validation", "train")


def check_genomes(table: Path, records: pd.DataFrame) -> None:
    """Check that each genome has one label and one taxon."""
    used = records[records["part"] != "unused"]
    for column in ("label", "taxon"):
        counts = used.groupby("genome", sort=False)[column].nunique()
        if (counts > 1).any():
            genome = counts.idxmax()
            first, second, *_ = used.loc[used["genome"] == genome, column].unique()
            raise InputError(f"{table}: genome {genome!r} has {column} {first!r} and {second!r}")


def assign_parts(records: pd.DataFrame, *, test: float, validation: float, seed: int) -> None:
    """Give every record the part of its genome.

    A genome that a row sends to a part goes there. If rows differ, it goes to the strictest part
    (test before validation before train), and the records that other rows send elsewhere are
    dropped. All other genomes of its taxon follow it, so that a held-out taxon has no genome in
    training. Where no row decides for any genome of a taxon, the SHA-256 of seed and taxon does:
    the fraction ``test`` of all taxa goes to test (rows may have their own fraction, of which the
    largest counts), ``validation`` to validation. A taxon therefore keeps its part when others are
    added.
    """
    used = records["part"] != "unused"
    rank = records["wanted"].map({part: n for n, part in enumerate(_STRICTEST_FIRST)})
    by_genome = rank.groupby(records["genome"]).transform("min")
    by_taxon = rank.groupby(records["taxon"]).transform("min")
    decided = by_genome.fillna(by_taxon).map(dict(enumerate(_STRICTEST_FIRST)))
    fractions = records["test"].astype(float).groupby(records["taxon"]).transform("max")
    share = fractions.fillna(test)
    place = records["taxon"].map({t: _place(f"{seed}\t{t}") for t in records["taxon"].unique()})
    drawn = np.select([place < share, place < share + validation], ["test", "validation"], "train")
    records.loc[used, "part"] = decided.where(decided.notna(), drawn)
    elsewhere = used & rank.notna() & (rank != by_genome)
    records.loc[elsewhere, "note"] = (
        "another row sends its genome to " + records.loc[elsewhere, "part"]
    )
    records.loc[elsewhere, "part"] = "dropped"


def _place(text: str) -> float:
    """Return a number from 0 to 1 that follows from a text; those of many are evenly spread."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def drop_relatives(records: pd.DataFrame, limit: float) -> None:
    """Take genomes that resemble held-out ones out of the parts.

    A genome of train or validation that shares more than ``limit`` of its 31-mers with test is
    dropped; then each genome of train that shares that much with the rest of validation.
    """
    for held_part, other_parts in (("test", ["validation", "train"]), ("validation", ["train"])):
        held_out = merge_sketches(records.loc[records["part"] == held_part, "sketch"])
        others = records[records["part"].isin(other_parts)]
        for numbers in others.groupby("genome", sort=False).groups.values():
            genome = merge_sketches(records.loc[numbers, "sketch"])
            share = shared_fraction(genome, held_out)
            if share > limit:
                note = f"shares {100 * share:.1f} % of its 31-mers with {held_part}"
                records.loc[numbers, ["part", "note"]] = "dropped", note


K = 31  # the largest odd length that fits into 64 bits; odd, so that no 31-mer is its complement
SCALED = 16
BLOCK = 1 << 20  # bases hashed together: some 60 MB of work space

Sketch = npt.NDArray[np.uint64]

_CODE = np.full(256, 4, np.uint8)
for _number, _base in enumerate(b"ACGT"):
    _CODE[_base] = _CODE[_base + 32] = _number


def sketch(sequence: str) -> Sketch:
    """Return the sampled canonical 31-mers of an ASCII ``sequence``: sorted, each once, ``[n]``."""
    codes = _CODE[np.frombuffer(sequence.encode("ascii"), np.uint8)]
    return merge_sketches(
        _sampled_kmers(codes[start : start + BLOCK + K - 1])
        for start in range(0, max(len(codes) - K + 1, 0), BLOCK)
    )


def merge_sketches(sketches: Iterable[Sketch]) -> Sketch:
    """Return all 31-mers of several sketches: sorted, each once."""
    merged: Sketch = np.unique(np.concatenate([np.empty(0, np.uint64), *sketches]))
    return merged


def shared_fraction(genome: Sketch, held_out: Sketch) -> float:
    """Return the fraction of the 31-mers of ``genome`` that are among those ``held_out``.

    It is 0 if either has none.
    """
    if not len(genome) or not len(held_out):
        return 0.0
    positions = np.minimum(np.searchsorted(held_out, genome), len(held_out) - 1)
    return float((held_out[positions] == genome).mean())


def _sampled_kmers(codes: npt.NDArray[np.uint8]) -> Sketch:
    """Return the hashes of the sampled canonical 31-mers of bases 0 to 3; none contains a 4."""
    count = len(codes) - K + 1
    # Words of 1, 2, 4, 8 and 16 bases: two neighbours make one of twice the width. In ``reverse``,
    # the complement, the first base is the lowest digit.
    forward = (codes & 3).astype(np.uint64)
    reverse = np.uint64(3) - forward
    for width in (1, 2, 4, 8):
        shift = np.uint64(2 * width)
        forward = (forward[:-width] << shift) | forward[width:]
        reverse = reverse[:-width] | (reverse[width:] << shift)
    # 31 bases: a word of 16, and the word 15 bases later without its first base, which is in both.
    last = slice(15, 15 + count)
    forward = (forward[:count] << np.uint64(30)) | (forward[last] & np.uint64(4**15 - 1))
    reverse = reverse[:count] | ((reverse[last] >> np.uint64(2)) << np.uint64(32))
    unknown = np.concatenate(([0], np.cumsum(codes == 4)))
    complete = unknown[K:] == unknown[:-K]
    # Mix the bits, so that the sample depends on all of them.
    hashes = np.minimum(forward, reverse)[complete] * np.uint64(0x9E3779B97F4A7C15)
    hashes ^= hashes >> np.uint64(32)
    hashes *= np.uint64(0xD6E8FEB86659FD93)
    hashes ^= hashes >> np.uint64(29)
    sampled: Sketch = np.unique(hashes[hashes < np.uint64(2**64 // SCALED)])
    return sampled
