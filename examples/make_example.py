"""Write a small example input: made-up contigs and reads, the same on every machine.

    python examples/make_example.py example.fa

The sequences are random and of no organism: open reading frames without stop codons, stretches
without any open frame, short reads, and records that cannot be scored.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

BASES = "ACGT"
STOPS = {"TAA", "TAG", "TGA"}


def coding(rng: random.Random, codons: int) -> str:
    """Random codons without a stop in the first frame."""
    sense = [a + b + c for a in BASES for b in BASES for c in BASES if a + b + c not in STOPS]
    return "".join(rng.choices(sense, k=codons))


def records(rng: random.Random) -> list[tuple[str, str]]:
    """(header, sequence) of the example."""
    found = [
        (f"contig_{n} made-up coding contig", coding(rng, rng.randint(300, 1500)))
        for n in range(1, 21)
    ]
    found += [(f"read_{n} made-up read", coding(rng, rng.randint(130, 170))) for n in range(1, 21)]
    found += [
        (f"noncoding_{n} stops in every frame", "TTAGTTAGTTAACTAACTAA" * 40) for n in range(1, 4)
    ]
    return [*found, ("unknown_bases", "N" * 600), ("two_bases", "AC")]


def main() -> None:
    """Write the file named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    path = parser.parse_args().output
    path.parent.mkdir(parents=True, exist_ok=True)
    made = records(random.Random(2026))
    path.write_text("".join(f">{header}\n{sequence}\n" for header, sequence in made))
    print(f"wrote {path}: {len(made)} records")


if __name__ == "__main__":
    main()
