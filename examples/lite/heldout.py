"""Cut the held-out genomes of a data set into pieces, and write a table of their labels.

    python examples/lite/heldout.py DATASET GENOMES OUT [--step 1000] [--most 12000]

This writes OUT/pieces_150.fa, _300.fa, _500.fa and _2000.fa, and OUT/labels.tsv. A piece of the
given length begins every --step bases, so each record that is long enough has at least one. At most
--most pieces of either label are kept, evenly spread. train.sh shows the next commands, `virnucpro
predict` and `virnucpro evaluate`.
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
    """Return (name, bases, row of genomes.tsv) of every piece, by label."""
    with (dataset / "genomes.tsv").open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream, delimiter="\t") if row["part"] == "test"]
    by_source: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for row in rows:
        by_source[row["source"]][row["record"]] = row
    pieces_of = defaultdict(list)
    seen: Counter[str] = Counter()  # several records may have the same id
    for source, rows_by_record in by_source.items():
        for record in read_records(genomes / source):
            if row := rows_by_record.get(record.id):
                seen[record.id] += 1
                for start in range(0, len(record.sequence) - length + 1, step):
                    name = f"{record.id}.{seen[record.id]}_{start + 1}_{length}bp"
                    pieces_of[row["label"]].append(
                        (name, record.sequence[start : start + length], row)
                    )
    return pieces_of


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
            pieces_of = pieces(args.dataset, args.genomes, length, args.step)
            with (args.out / f"pieces_{length}.fa").open("w", encoding="utf-8") as fasta:
                for label_pieces in pieces_of.values():
                    every = -(-len(label_pieces) // args.most)
                    for name, bases, row in label_pieces[::every]:
                        fasta.write(f">{name}\n{bases}\n")
                        labels.write(f"{name}\t{row['label']}\t{row['group']}\t{row['genome']}\n")
            print(length, {label: len(rows) for label, rows in pieces_of.items()})


if __name__ == "__main__":
    main()
