"""The assignment of taxa to parts: by name, never by chunk, and without near-identical genomes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from virnucpro.errors import InputError
from virnucpro.training.data.dataset import Part
from virnucpro.training.data.relatives import merge_sketches, shared_fraction

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
            raise InputError(
                f"{table}: genome {genome!r} has {column} {first!r} by one record and {second!r} "
                f"by another: correct the patterns, or give it two names with genome"
            )


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
    decided = by_genome.fillna(by_taxon)
    fractions = records["test"].astype(float).groupby(records["taxon"]).transform("max")
    for number in records.index[used]:
        if decided[number] == decided[number]:  # it is no NaN
            part = _STRICTEST_FIRST[int(decided[number])]
        else:
            share = fractions[number] if fractions[number] == fractions[number] else test
            digest = hashlib.sha256(f"{seed}\t{records.at[number, 'taxon']}".encode()).digest()
            place = int.from_bytes(digest[:8], "big") / 2**64  # evenly spread between 0 and 1
            ends = {"test": share, "validation": share + validation, "train": np.inf}
            part = next(part for part in _STRICTEST_FIRST if place < ends[part])
        records.at[number, "part"] = part
    elsewhere = used & rank.notna() & (rank != by_genome)
    records.loc[elsewhere, "note"] = (
        "another row sends its genome to " + records.loc[elsewhere, "part"]
    )
    records.loc[elsewhere, "part"] = "dropped"


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
