"""Print the tables of docs/lite.md, as Markdown, from what train.sh left in its folder.

    python examples/lite/figures.py WORK

AUROC and its 95 % intervals, over genomes, are those of `virnucpro evaluate`. Calls are those of
`virnucpro predict` at the default cut.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from virnucpro.io.records import Records
from virnucpro.metrics.classification import auroc

LENGTHS = (150, 300, 500, 2100, 5000)
GC_BINS = (0, 35, 45, 55, 65, 100)  # percent
KINDS = ("virus", "others")

Row = dict[str, str]


def table(path: Path) -> list[Row]:
    """Return the rows of a tab-separated table."""
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def print_table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> None:
    """Print a table in Markdown."""
    print("|", " | ".join(head), "|")
    print("|" + "---|" * len(head))
    for row in rows:
        print("|", " | ".join(row), "|")
    print()


class Pieces:
    """The calls of the pieces of one length, or of pairs, with what is known of each piece.

    Attributes:
        stem: the name of their file.
        title: the same for people.
        rows: of the table of contigs, each with ``label``, ``group`` and ``genome``.
        evaluation: rows of the evaluation, by slice and name.
    """

    def __init__(self, work: Path, stem: str, title: str, labels: dict[str, Row]) -> None:
        self.stem, self.title = stem, title
        contigs = table(work / "predicted" / f"{stem}_contigs.tsv")
        self.rows = [row | labels[row["record"]] for row in contigs]
        evaluated = table(work / f"evaluated_{stem}" / "evaluation.tsv")
        self.evaluation = {(row["slice"], row["name"]): row for row in evaluated}

    def called(self, **chosen: str) -> str:
        """Return the share of the rows with these values that are called virus."""
        rows = [row for row in self.rows if all(row[key] == v for key, v in chosen.items())]
        if not rows:
            return "-"
        return f"{100 * sum(row['call'] == 'virus' for row in rows) / len(rows):.1f} %"

    def auroc(self, name: tuple[str, str]) -> str:
        """Return the AUROC of a slice with its interval."""
        row = self.evaluation.get(name)
        if row is None or row["auroc"] == "NA":
            return "-"
        low, high = row["auroc_low"], row["auroc_high"]
        interval = "" if low == "NA" else f" ({float(low):.3f}-{float(high):.3f})"
        return f"{float(row['auroc']):.3f}{interval}"


def overall(kinds: list[Pieces]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind of piece."""
    for pieces in kinds:
        scored = sum(row["status"] == "scored" for row in pieces.rows)
        whole = next(name for name in pieces.evaluation if name[0] == "overall")
        yield (
            pieces.title,
            f"{len(pieces.rows):,}",
            f"{100 * scored / len(pieces.rows):.1f} %",
            pieces.auroc(whole),
            *(pieces.called(label=kind) for kind in KINDS),
        )


def by_group(lengths: list[Pieces]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each group, viruses first."""
    groups = {(row["label"], row["group"]) for pieces in lengths for row in pieces.rows}
    for label, group in sorted(groups, key=lambda name: (name[0] != "virus", name[1])):
        cells = []
        for pieces in lengths:
            row = pieces.evaluation.get(("group", group))
            score = "-" if row is None or row["auroc"] == "NA" else f"{float(row['auroc']):.3f}"
            share = pieces.called(label=label, group=group)
            cells.append(score if share == "-" else f"{score} ({share})")
        yield (group, *cells)


def gc_percent(path: Path) -> dict[str, float]:
    """Return the share of G and C of every record of a file, in percent of its known bases."""
    shares = {}
    for record in Records(path):
        counts = Counter(record.sequence.upper())
        known = sum(counts[base] for base in "ACGT")
        shares[record.id] = 100 * (counts["G"] + counts["C"]) / max(known, 1)
    return shares


def by_gc(work: Path, pieces: Pieces) -> Iterator[tuple[str, ...]]:
    """Yield a row for each range of GC."""
    shares = gc_percent(work / "pieces" / f"{pieces.stem}.fa")
    for low, high in pairwise(GC_BINS):
        rows = [row for row in pieces.rows if low <= shares[row["record"]] < high]
        virus = np.array([row["label"] == "virus" for row in rows])
        scores = np.array([float(row["virus_score"]) for row in rows])
        area = auroc(virus, scores)
        calls = np.array([row["call"] == "virus" for row in rows])
        yield (
            f"{low}-{high} %",
            f"{int(virus.sum()):,} / {int((~virus).sum()):,}",
            "-" if area is None else f"{area:.3f}",
            f"{100 * calls[virus].mean():.1f} %" if virus.any() else "-",
            f"{100 * calls[~virus].mean():.1f} %" if (~virus).any() else "-",
        )


def same_genomes(lengths: list[Pieces]) -> Iterator[tuple[str, ...]]:
    """Yield the AUROC at each length of the genomes that have pieces of every length."""
    genomes = set.intersection(*({row["genome"] for row in p.rows} for p in lengths))
    for pieces in lengths:
        rows = [row for row in pieces.rows if row["genome"] in genomes]
        area = auroc(
            np.array([row["label"] == "virus" for row in rows]),
            np.array([float(row["virus_score"]) for row in rows]),
        )
        yield pieces.title, f"{len(rows):,}", "-" if area is None else f"{area:.3f}"


def whole_records(work: Path) -> Iterator[tuple[str, ...]]:
    """Yield what is called virus of the whole records of each group of others."""
    known = {row["record"]: row for row in table(work / "data" / "genomes.tsv")}
    records: dict[str, list[Row]] = defaultdict(list)
    for row in table(work / "predicted" / "test_records_contigs.tsv"):
        if known[row["record"]]["label"] == "others":
            records[known[row["record"]]["group"]].append(row)
    for group, rows in sorted(records.items()):
        bases = sum(int(row["length"]) for row in rows)
        virus = [row for row in rows if row["call"] == "virus"]
        chunks = sum(int(row["chunks_scored"]) for row in rows)
        confident = sum(int(row["confident_viral"]) for row in rows)
        yield (
            group,
            f"{bases / 1e6:.2f}",
            f"{len(virus):,} of {len(rows):,}",
            f"{100 * sum(int(row['length']) for row in virus) / bases:.1f} %",
            f"{100 * confident / max(chunks, 1):.1f} %",
        )


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    work = parser.parse_args().work
    labels = {row["record"]: row for row in table(work / "pieces" / "labels.tsv")}
    lengths = [Pieces(work, f"pieces_{n}", f"{n:,} bp", labels) for n in LENGTHS]
    pairs = Pieces(work, "mates_1", "two mates of 150 bp", labels)
    called = ("viral pieces called virus", "other pieces called virus")
    print_table(("piece", "pieces", "scored", "AUROC", *called), overall([*lengths, pairs]))
    print_table(("length", "pieces", "AUROC"), same_genomes(lengths))
    print_table(("held-out group", *(f"{n:,} bp" for n in LENGTHS)), by_group(lengths))
    of_500 = lengths[LENGTHS.index(500)]
    print_table(("GC, 500 bp", "virus / others", "AUROC", *called), by_gc(work, of_500))
    head = ("others", "Mbp", "records called virus", "of the bases", "chunks confidently viral")
    print_table(head, whole_records(work))


if __name__ == "__main__":
    main()
