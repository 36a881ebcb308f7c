"""Which genome goes to which part: by its name, never by chunk, and without near-identical ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from virnucpro.errors import InputError
from virnucpro.training.data.dataset import Part
from virnucpro.training.data.relatives import shares, union
from virnucpro.training.data.survey import Origin, Survey

_STRICTEST: tuple[Part, ...] = ("test", "validation", "train")  # a held-out genome stays held out


def by_genome(origins: Iterable[Origin]) -> dict[str, list[Origin]]:
    """Records of each genome, in order; those that no row is for are left out."""
    found: dict[str, list[Origin]] = {}
    for origin in origins:
        if origin.row is not None:
            found.setdefault(origin.genome, []).append(origin)
    return found


def check_labels(table: Path, origins: Iterable[Origin]) -> None:
    """A genome has one label.

    Raises:
        InputError: rows give it both.
    """
    seen: dict[str, Origin] = {}
    for origin in origins:
        if origin.row is None:
            continue
        first = seen.setdefault(origin.genome, origin)
        if first.row is not None and first.row.label != origin.row.label:
            raise InputError(
                f"{table}: genome {origin.genome!r} is {first.row.label} by line {first.row.line} "
                f"and {origin.row.label} by line {origin.row.line}: leave it out of one with "
                f"match, or give it two names with genome"
            )


def assign(origins: Iterable[Origin], *, test: float, validation: float, seed: int) -> None:
    """Give every record the part of its genome.

    A genome that some row sends to a part goes there; where rows differ, to the stricter one
    (test, validation, train), and what other rows send elsewhere is dropped. All others go by the
    SHA-256 of seed and name: fraction ``test`` (of all genomes; a row may have its own) to test,
    ``validation`` to validation. So a genome keeps its part when others are added.
    """
    for genome, records in by_genome(origins).items():
        rows = {record.row.line: record.row for record in records if record.row is not None}
        asked = [part for part in _STRICTEST if any(r.split.part == part for r in rows.values())]
        own = [row.split.test for row in rows.values() if row.split.test is not None]
        part = asked[0] if asked else _by_name(genome, max(own, default=test), validation, seed)
        for record in records:
            assert record.row is not None
            if record.row.split.part in (None, part):
                record.part = part
            else:
                other = next(line for line, row in rows.items() if row.split.part == part)
                record.reason = "elsewhere"
                record.note = f"line {other} of the table sends its genome to {part}"


def _by_name(genome: str, test: float, validation: float, seed: int) -> Part:
    digest = hashlib.sha256(f"{seed}\t{genome}".encode()).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    return "test" if place < test else "validation" if place < test + validation else "train"


def drop_relatives(found: Survey, limit: float) -> None:
    """Take out of train and validation what shares more than ``limit`` of its 31-mers with test.

    And out of train what shares that much with what is left of validation.
    """
    for held, others in (("test", ("validation", "train")), ("validation", ("train",))):
        pairs = list(zip(found.origins, found.sketches, strict=True))
        kmers = union(own for origin, own in pairs if origin.part == held)
        genomes: dict[str, list[int]] = {}
        for number, (origin, _) in enumerate(pairs):
            if origin.part in others:
                genomes.setdefault(origin.genome, []).append(number)
        named = ((name, [pairs[n][1] for n in own]) for name, own in genomes.items())
        for name, share in shares(named, kmers):
            if share > limit:
                for origin in (found.origins[number] for number in genomes[name]):
                    origin.part, origin.reason = None, "related"
                    origin.note = f"shares {100 * share:.1f} % of its 31-mers with {held}"
