"""Cut serpins, or put residues into their loops, to see what a model makes of such proteins.

    python examples/rcl/altered.py serpins.csv --last 120 > fragments.csv
    python examples/rcl/altered.py serpins.csv --around 60 > pieces.csv
    python examples/rcl/altered.py serpins.csv --insert 15 > insertions.csv
    virnucpro rcl evaluate --serpins fragments.csv --model blosum_unet --model hmm \\
        --split runs/run_001/split.tsv --dataset test --min-consecutive 12

Writes a table with the columns id, rcl_start, rcl_end and Sequence. Serpins whose loop does not lie
within the fragment as a whole are left out.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

from virnucpro.rcl.features import AMINO_ACIDS
from virnucpro.rcl.proteins import AnnotatedProtein, read_proteins


def cut(protein: AnnotatedProtein, start: int, stop: int) -> AnnotatedProtein | None:
    """Return residues ``start`` to ``stop``, 0-based and half-open; None without the whole loop."""
    start, stop = max(start, 0), min(stop, len(protein.sequence))
    if protein.start - 1 < start or protein.end > stop:
        return None
    sequence = protein.sequence[start:stop]
    return AnnotatedProtein(protein.accession, sequence, protein.start - start, protein.end - start)


def with_insertion(
    protein: AnnotatedProtein, count: int, random: np.random.Generator
) -> AnnotatedProtein:
    """Return it with ``count`` random residues in the middle of its loop."""
    middle = (protein.start + protein.end) // 2
    added = "".join(random.choice(list(AMINO_ACIDS), count))
    sequence = protein.sequence[:middle] + added + protein.sequence[middle:]
    return AnnotatedProtein(protein.accession, sequence, protein.start, protein.end + count)


def main() -> None:
    """Write the altered proteins of a table to standard output."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path, help="proteins with an RCL (CSV)")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--last", type=int, metavar="N", help="keep the last N residues")
    how.add_argument("--around", type=int, metavar="N", help="keep the loop and N on either side")
    how.add_argument("--insert", type=int, metavar="N", help="put N residues into the loop")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(["id", "rcl_start", "rcl_end", "Sequence"])
    for protein in read_proteins(options.table, None, 1 << 20)[0]:
        length = len(protein.sequence)
        altered: AnnotatedProtein | None
        if options.insert:
            altered = with_insertion(protein, options.insert, random)
        elif options.last:
            altered = cut(protein, length - options.last, length)
        else:
            altered = cut(protein, protein.start - 1 - options.around, protein.end + options.around)
        if altered is not None:
            rows.writerow([altered.accession, altered.start, altered.end, altered.sequence])


if __name__ == "__main__":
    main()
