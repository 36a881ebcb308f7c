"""Cut the held-out genomes of a data set into pieces, with a table of what they are.

    python examples/lite/heldout.py DATASET GENOMES OUT [--step 1000] [--most 12000]

Writes OUT/pieces_150.fa, _300.fa, _500.fa and _2000.fa (a piece of so many bases every --step
bases, at least one a record that is long enough; of either label at most --most, evenly) and
OUT/labels.tsv. `virnucpro predict` and `virnucpro evaluate` do the rest; see train.sh.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter, defaultdict
from pathlib import Path

from virnucpro.io.records import read_records

LENGTHS = (150, 300, 500, 2000)


def pieces(
    dataset: Path, genomes: Path, length: int, step: int
) -> dict[str, list[tuple[str, str, dict[str, str]]]]:
    """(name, bases, row of genomes.tsv) of every piece, by label."""
    with (dataset / "genomes.tsv").open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream, delimiter="\t") if row["part"] == "test"]
    by_source: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for row in rows:
        by_source[row["source"]][row["record"]] = row
    found = defaultdict(list)
    seen: Counter[str] = Counter()  # two records of other files, or of one, may have one id
    for source, wanted in by_source.items():
        for record in read_records(genomes / source):
            if row := wanted.get(record.id):
                seen[record.id] += 1
                for start in range(0, len(record.sequence) - length + 1, step):
                    name = f"{record.id}.{seen[record.id]}_{start + 1}_{length}bp"
                    found[row["label"]].append((name, record.sequence[start : start + length], row))
    return found


def main() -> None:
    """Write the pieces and their labels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("dataset", "genomes", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--step", type=int, default=1000)
    parser.add_argument("--most", type=int, default=12_000)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "labels.tsv").open("w", encoding="utf-8") as labels:
        labels.write("record\tlabel\tgroup\tgenome\n")
        for length in LENGTHS:
            found = pieces(args.dataset, args.genomes, length, args.step)
            with (args.out / f"pieces_{length}.fa").open("w", encoding="utf-8") as fasta:
                for own in found.values():
                    for name, bases, row in own[:: -(-len(own) // args.most)]:
                        fasta.write(f">{name}\n{bases}\n")
                        labels.write(f"{name}\t{row['label']}\t{row['group']}\t{row['genome']}\n")
            print(length, {label: len(own) for label, own in found.items()})


if __name__ == "__main__":
    main()
