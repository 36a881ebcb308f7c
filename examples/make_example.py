"""Write a small example input: contigs and reads of known origin, the same on every machine.

    python examples/make_example.py example.fa

Cut from examples/sequences.fa, pieces of six INSDC records (accession and range stand in the
headers): two phages and an arenavirus, three bacteria; none of them, nor a near relative, was used
to train the model type lite. A header says what it is, so that the calls can be judged at a glance.
There are reads of 150 bases too, and records that cannot be scored.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

SOURCE = Path(__file__).parent / "sequences.fa"
VIRUSES = {"NC_001330.1", "NC_007636.1", "NC_077807.1"}
READS, READ = 34, 150  # reads, and bases a read
COMPLEMENT = str.maketrans("ACGT", "TGCA")


def sources() -> list[tuple[str, str, str]]:
    """(accession, what it is, bases) of every piece."""
    found = []
    for part in SOURCE.read_text(encoding="ascii").split(">")[1:]:
        head, *lines = part.splitlines()
        place, _, name = head.partition(" ")
        found.append((place.split(":")[0], name, "".join(lines)))
    return found


def records(rng: random.Random) -> list[tuple[str, str]]:
    """(header, sequence) of the example."""
    contigs, made = sources(), []
    for accession, name, bases in contigs:
        label = "virus" if accession in VIRUSES else "bacterium"
        made.append((f"{label}_{accession} {name}", bases))
    for number in range(1, READS + 1):
        accession, _, bases = rng.choice(contigs)
        start = rng.randrange(len(bases) - READ)
        read = bases[start : start + READ]
        if rng.random() < 0.5:
            read = read[::-1].translate(COMPLEMENT)
        label = "virus" if accession in VIRUSES else "bacterium"
        made.append((f"read_{number}_{label} {accession}:{start + 1}", read))
    made += [
        (f"noncoding_{n} stops in every frame", "TTAGTTAGTTAACTAACTAA" * 40) for n in range(1, 4)
    ]
    return [*made, ("unknown_bases", "N" * 600), ("two_bases", "AC")]


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
