"""The terminal repeats of a record, which complete genomes of many viruses have."""

from __future__ import annotations

SHORTEST = 21  # bases of a repeat, as geNomad has it (Camargo et al. 2024, Nat Biotechnol 42:1303)
FEWEST_WORDS = 8  # of three bases in its first 21; fewer are a simple repeat, such as ACACAC

COMPLEMENT = str.maketrans("ACGT", "TGCA")


def topology(sequence: str) -> str:
    """Return ``DTR``, ``ITR`` or ``linear`` for a sequence in letters of either case.

    A direct terminal repeat (DTR) is the same bases at both ends: most often the assembly of a
    circular molecule. An inverted one (ITR) ends with the reverse complement of its beginning.
    """
    start = sequence[:SHORTEST].upper()
    words = {start[i : i + 3] for i in range(len(start) - 2)}
    if len(sequence) < 2 * SHORTEST or len(words) < FEWEST_WORDS or "N" in start:
        return "linear"
    half = sequence[len(sequence) // 2 :].upper()
    place = half.rfind(start)
    if place >= 0 and sequence[: len(half) - place].upper() == half[place:]:
        return "DTR"
    return "ITR" if half[-SHORTEST:].translate(COMPLEMENT)[::-1] == start else "linear"
