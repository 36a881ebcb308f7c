"""Cut the held-out genomes of a data set into pieces, and write a table of their labels.

    python examples/lite/heldout.py DATASET OUT [--most 600] [--part test] [--groups human,yeast]

This writes OUT/pieces_150.fa, _300.fa, _500.fa, _2100.fa and _5000.fa, and OUT/labels.tsv. Of each
group, at most --most pieces of a length are kept, evenly spread over its records. Pieces with more
than a tenth of unknown letters are left out. OUT/mates_1.fa and OUT/mates_2.fa are paired reads:
150 bases from either end of each piece of 500. measure.sh has the next commands.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from virnucpro.io.records import Records
from virnucpro.training.data.dataset import Dataset, LabelledRecord, Part

LENGTHS = (150, 300, 500, 2100, 5000)
FRAGMENT = 500  # bases from the start of one mate to that of the other
MATE = 150  # bases
COMPLEMENT = str.maketrans("ACGT", "TGCA")
STEP = 500  # bases from the start of a piece to that of the next, before some are left out


def pieces_by_group(
    dataset: Dataset, part: Part, length: int, wanted: set[str]
) -> dict[str, list[tuple[str, str, LabelledRecord]]]:
    """Return (name, bases, record) of every piece of a part, by group.

    An empty ``wanted`` means all groups.
    """
    pieces: dict[str, list[tuple[str, str, LabelledRecord]]] = defaultdict(list)
    for record in dataset.records(part):
        if wanted and record.group not in wanted:
            continue
        for start in range(0, len(record.sequence) - length + 1, max(STEP, length)):
            bases = record.sequence[start : start + length]
            if bases.count("N") <= length / 10:
                name = f"{record.record}_{start + 1}_{length}bp"
                pieces[record.group].append((name, bases, record._replace(sequence="")))
    return pieces


def write_mates(folder: Path) -> None:
    """Write the paired reads of the pieces that are fragments: the second mate is reversed."""
    with (
        (folder / "mates_1.fa").open("w", encoding="utf-8") as first,
        (folder / "mates_2.fa").open("w", encoding="utf-8") as second,
    ):
        for piece in Records(folder / f"pieces_{FRAGMENT}.fa"):
            first.write(f">{piece.id}\n{piece.sequence[:MATE]}\n")
            last = piece.sequence[-MATE:].translate(COMPLEMENT)[::-1]
            second.write(f">{piece.id}\n{last}\n")


def main() -> None:
    """Write the pieces and their labels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--most", type=int, default=600)
    parser.add_argument("--part", choices=("train", "validation", "test"), default="test")
    parser.add_argument("--groups", default="", help="only these, with commas between them")
    args = parser.parse_args()
    wanted = set(filter(None, args.groups.split(",")))
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "labels.tsv").open("w", encoding="utf-8") as labels:
        labels.write("record\tlabel\tgroup\tgenome\n")
        for length in LENGTHS:
            groups = pieces_by_group(Dataset(args.dataset), args.part, length, wanted)
            with (args.out / f"pieces_{length}.fa").open("w", encoding="utf-8") as fasta:
                for pieces in groups.values():
                    every = -(-len(pieces) // args.most)
                    for name, bases, record in pieces[::every]:
                        fasta.write(f">{name}\n{bases}\n")
                        row = (name, record.label, record.group, record.genome)
                        labels.write("\t".join(row) + "\n")
            print(length, {group: min(args.most, len(p)) for group, p in groups.items()})
    write_mates(args.out)


if __name__ == "__main__":
    main()
