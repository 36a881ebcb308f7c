"""The assignment of genomes to parts: by name, never by chunk, and without near-identical ones."""

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


def check_labels(table: Path, records: Iterable[SurveyedRecord]) -> None:
    """Check that each genome has one label.

    Raises:
        InputError: rows of the table give a genome both labels.
    """
    first_record: dict[str, SurveyedRecord] = {}
    for record in records:
        if record.row is None:
            continue
        first = first_record.setdefault(record.genome, record)
        if first.row is not None and first.row.label != record.row.label:
            raise InputError(
                f"{table}: genome {record.genome!r} is {first.row.label} by line {first.row.line} "
                f"and {record.row.label} by line {record.row.line}: leave it out of one with "
                f"match, or give it two names with genome"
            )


def assign_parts(
    records: Iterable[SurveyedRecord], *, test: float, validation: float, seed: int
) -> None:
    """Give every record the part of its genome.

    A genome that a row sends to a part goes there. If rows differ, it goes to the strictest part
    (test before validation before train), and the records that other rows send elsewhere are
    dropped. All other genomes are assigned by the SHA-256 of seed and name: the fraction ``test``
    of all genomes to test (a row may have its own fraction), ``validation`` to validation. A
    genome therefore keeps its part when others are added.
    """
    genomes: dict[str, list[SurveyedRecord]] = defaultdict(list)
    for record in records:
        if record.row is not None:
            genomes[record.genome].append(record)
    for genome, members in genomes.items():
        rows = {record.row.line: record.row for record in members if record.row is not None}
        row_parts = {row.split.part for row in rows.values()}
        part = next((part for part in _STRICTEST_FIRST if part in row_parts), None)
        if part is None:
            fractions = [row.split.test for row in rows.values() if row.split.test is not None]
            part = _part_by_name(genome, max(fractions, default=test), validation, seed)
        for record in members:
            assert record.row is not None
            if record.row.split.part in (None, part):
                record.part = part
            else:
                line = next(line for line, row in rows.items() if row.split.part == part)
                record.reason = "elsewhere"
                record.note = f"line {line} of the table sends its genome to {part}"


def _part_by_name(genome: str, test: float, validation: float, seed: int) -> Part:
    digest = hashlib.sha256(f"{seed}\t{genome}".encode()).digest()
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
