"""The assignment of taxa to parts: by name, never by chunk, and without near-identical genomes."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from virnucpro.errors import InputError
from virnucpro.training.data.dataset import Part
from virnucpro.training.data.genomes import GenomeSurvey, SurveyedRecord
from virnucpro.training.data.relatives import merge_sketches, shared_fraction

_STRICTEST_FIRST: tuple[Part, ...] = ("test", "validation", "train")


def check_genomes(table: Path, records: Iterable[SurveyedRecord]) -> None:
    """Check that each genome has one label and one taxon.

    Raises:
        InputError: rows of the table give a genome both labels, or two taxa.
    """
    first_record: dict[str, SurveyedRecord] = {}
    for record in records:
        if record.row is None:
            continue
        first = first_record.setdefault(record.genome, record)
        assert first.row is not None
        if first.row.label != record.row.label:
            raise InputError(
                f"{table}: genome {record.genome!r} is {first.row.label} by line {first.row.line} "
                f"and {record.row.label} by line {record.row.line}: leave it out of one with "
                f"match, or give it two names with genome"
            )
        if first.taxon != record.taxon:
            raise InputError(
                f"{table}: genome {record.genome!r} has taxon {first.taxon!r} by its record "
                f"{first.name!r} (line {first.row.line}) and {record.taxon!r} by "
                f"{record.name!r} (line {record.row.line}): correct the pattern of taxon, which "
                f"every row of the genome needs, or give it two names with genome"
            )


def assign_parts(
    records: Iterable[SurveyedRecord], *, test: float, validation: float, seed: int
) -> None:
    """Give every record the part of its genome.

    A genome that a row sends to a part goes there. If rows differ, it goes to the strictest part
    (test before validation before train), and the records that other rows send elsewhere are
    dropped. All other genomes of its taxon follow it, so that a held-out taxon has no genome in
    training. Where no row decides for any genome of a taxon, the SHA-256 of seed and taxon does:
    the fraction ``test`` of all taxa goes to test (rows may have their own fraction, of which the
    largest counts), ``validation`` to validation. A taxon therefore keeps its part when others are
    added.
    """
    genomes: dict[str, list[SurveyedRecord]] = defaultdict(list)
    for record in records:
        if record.row is not None:
            genomes[record.genome].append(record)
    undecided: dict[str, list[SurveyedRecord]] = defaultdict(list)
    decided_parts: dict[str, set[Part]] = defaultdict(set)
    for members in genomes.values():
        rows = {record.row.line: record.row for record in members if record.row is not None}
        row_parts = {row.part for row in rows.values()}
        part = next((part for part in _STRICTEST_FIRST if part in row_parts), None)
        if part is None:
            undecided[members[0].taxon] += members
            continue
        decided_parts[members[0].taxon].add(part)
        for record in members:
            assert record.row is not None
            if record.row.part in (None, part):
                record.part = part
            else:
                line = next(line for line, row in rows.items() if row.part == part)
                record.reason = "elsewhere"
                record.note = f"line {line} of the table sends its genome to {part}"
    for taxon, members in undecided.items():
        tests = [record.row.test for record in members if record.row is not None]
        fractions = [test for test in tests if test is not None]
        part = next((part for part in _STRICTEST_FIRST if part in decided_parts[taxon]), None)
        part = part or _part_by_name(taxon, max(fractions, default=test), validation, seed)
        for record in members:
            record.part = part


def _part_by_name(taxon: str, test: float, validation: float, seed: int) -> Part:
    digest = hashlib.sha256(f"{seed}\t{taxon}".encode()).digest()
    number = int.from_bytes(digest[:8], "big") / 2**64  # evenly spread between 0 and 1
    return "test" if number < test else "validation" if number < test + validation else "train"


def drop_relatives(survey: GenomeSurvey, limit: float) -> None:
    """Take genomes that resemble held-out ones out of the parts.

    A genome of train or validation that shares more than ``limit`` of its 31-mers with test is
    dropped; then each genome of train that shares that much with the rest of validation.
    """
    for held_part, other_parts in (("test", ("validation", "train")), ("validation", ("train",))):
        pairs = list(zip(survey.records, survey.sketches, strict=True))
        held_out = merge_sketches(sketch for record, sketch in pairs if record.part == held_part)
        genomes: dict[str, list[int]] = defaultdict(list)
        for number, (record, _) in enumerate(pairs):
            if record.part in other_parts:
                genomes[record.genome].append(number)
        for numbers in genomes.values():
            genome = merge_sketches(pairs[number][1] for number in numbers)
            share = shared_fraction(genome, held_out)
            if share <= limit:
                continue
            for number in numbers:
                record = survey.records[number]
                record.part, record.reason = None, "related"
                record.note = f"shares {100 * share:.1f} % of its 31-mers with {held_part}"
