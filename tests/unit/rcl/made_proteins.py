"""Small proteins with a motif in the place of an RCL, and their tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from virnucpro.rcl.features import AMINO_ACIDS
from virnucpro.rcl.proteins import AnnotatedProtein

MOTIF = "GTEAAAATAVVMMRCAM"


def protein(seed: int, length: int, motif: str = MOTIF) -> AnnotatedProtein:
    """Return a random protein; with the motif near its end where there is one."""
    random = np.random.default_rng(seed)
    residues = "".join(random.choice(list(AMINO_ACIDS), length))
    if not motif:
        return AnnotatedProtein(f"O{seed}", residues)
    start = length - len(motif) - int(random.integers(3, 9))
    sequence = residues[:start] + motif + residues[start + len(motif) :]
    return AnnotatedProtein(f"S{seed}", sequence, start + 1, start + len(motif))


def proteins(count: int, *, first: int = 0) -> list[AnnotatedProtein]:
    """Return ``count`` proteins with a motif, and half as many without."""
    random = np.random.default_rng(first)
    lengths = random.integers(50, 120, 2 * count).tolist()
    with_rcl = [protein(first + n, lengths[n]) for n in range(count)]
    return with_rcl + [protein(first + n, lengths[n], "") for n in range(count, count + count // 2)]


def write_tables(folder: Path, count: int = 30) -> tuple[Path, Path]:
    """Write a table of proteins with a motif, and one of others."""
    folder.mkdir(parents=True, exist_ok=True)
    made = proteins(count)
    serpins, others = folder / "serpins.csv", folder / "others.csv"
    rows = [f"{p.accession},{p.start},{p.end},{p.sequence}" for p in made if p.has_rcl]
    serpins.write_text("id,rcl_start,rcl_end,Sequence\n" + "\n".join(rows) + "\n")
    rows = [f"{p.accession},{p.sequence}" for p in made if not p.has_rcl]
    others.write_text("id,Sequence\n" + "\n".join(rows) + "\n")
    return serpins, others
