"""Print how good calls are on held-out taxa and on whole collections outside, side by side.

    python examples/lite/outside.py DATASET PIECES PREDICTED [PREDICTED...]

PIECES was made by heldout.py from DATASET, and each PREDICTED by `virnucpro predict` of its files
(measure.sh has the commands). Groups whose name begins with "outside" are collections and genera
that were held out as a whole. The second table shows whole genomes of hosts outside, from the calls
of DATASET/test_records.fa: the share of the bases in records that are called virus, and in viral
regions of other records.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections import defaultdict
from pathlib import Path

import numpy as np

from virnucpro.metrics import Bools, auroc

LENGTHS = (150, 300, 500, 2100, 5000)
PHAGES = re.compile("(?<!viro)phage|Microviridae|archaeal viruses")
EUKARYOTES = re.compile(
    "human|yeast|plant genes|plants|vertebrate|nuclear|fung|transcript|exon|organ"
)
GENOMES = "test_records_contigs.tsv"
FEWEST = 40  # pieces of a group that can be the worst one

Row = dict[str, str]


def table(path: Path) -> list[Row]:
    """Return the rows of a tab-separated table."""
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def percent(called: Bools) -> str:
    """Return a share of records, or a dash where there are none."""
    return f"{100 * called.mean():.1f} %" if len(called) else "-"


def worst_group(rows: list[Row], called: Bools) -> str:
    """Return the group of others with the largest share of calls."""
    groups: dict[str, list[bool]] = defaultdict(list)
    for row, call in zip(rows, called.tolist(), strict=True):
        if row["label"] != "virus":
            groups[row["group"]].append(call)
    shares = [(float(np.mean(g)), name) for name, g in groups.items() if len(g) >= FEWEST]
    share, name = max(shares, default=(0.0, "-"))
    return f"{100 * share:.1f} % ({name.removeprefix('outside ')})"


def figures(rows: list[Row]) -> list[str]:
    """Return the cells of a row of the table."""
    scores = np.array([float(r["virus_score"]) if r["virus_score"] != "NA" else -1.0 for r in rows])
    virus = np.array([r["label"] == "virus" for r in rows])
    called = np.array([r["call"] == "virus" for r in rows])
    phages = virus & np.array([bool(PHAGES.search(r["group"])) for r in rows])
    hosts = ~virus & ~np.array([bool(EUKARYOTES.search(r["group"])) for r in rows])
    both = phages | hosts
    areas = (auroc(phages[both], scores[both]), auroc(virus, scores))
    return [
        *("-" if area is None else f"{area:.3f}" for area in areas),
        *map(percent, (called[phages], called[virus], called[~virus])),
        worst_group(rows, called),
    ]


def print_genomes(dataset: Path, folders: list[Path]) -> None:
    """Print what is called virus of whole genomes outside."""
    known = {row["record"]: row for row in table(dataset / "genomes.tsv")}
    genomes: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(dict)
    for folder in folders:
        for row in table(folder / GENOMES):
            of = known[row["record"]]
            if of["label"] == "virus" or not of["group"].startswith("outside"):
                continue
            genome = genomes[of["group"].removeprefix("outside "), of["genome"]]
            sums = genome.setdefault(folder.name, [0, 0, 0])
            called = row["call"] == "virus"
            sums[0] += int(row["length"])
            sums[1 if called else 2] += int(row["length"] if called else row["viral_bases"])
    heads = " | ".join(f"{f.name}: bases called | in regions" for f in folders)
    print(f"\n| hosts outside | Mbp | {heads} |")
    print("|---|---|" + "---|---|" * len(folders))
    for (group, name), sums_of in sorted(genomes.items()):
        rows = [sums_of[folder.name] for folder in folders]
        shares = [f"{100 * part / row[0]:.1f} %" for row in rows for part in row[1:]]
        print("|", " | ".join([f"{group}: {name}", f"{rows[0][0] / 1e6:.1f}", *shares]), "|")


def print_unfamiliar(labels: dict[str, Row], folders: list[Path]) -> None:
    """Print which share of the right and of the wrong calls outside is unfamiliar."""
    print("\n| piece | model | viruses called, outside | unfamiliar | others called | unfamiliar |")
    print("|---|---|---|---|---|---|")
    for length in LENGTHS:
        for folder in folders:
            path = folder / f"pieces_{length}_virus.tsv"
            if not path.exists():
                continue
            rows = [row | labels[row["record"]] for row in table(path)]
            rows = [row for row in rows if row["group"].startswith("outside")]
            cells = [f"{length:,} bp", folder.name]
            for virus in (True, False):
                own = [r["unfamiliar"] == "yes" for r in rows if (r["label"] == "virus") == virus]
                cells += [f"{len(own):,}", percent(np.array(own))]
            print("|", " | ".join(cells), "|")


def main() -> None:
    """Print the tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("pieces", type=Path)
    parser.add_argument("predicted", type=Path, nargs="+")
    args = parser.parse_args()
    labels = {row["record"]: row for row in table(args.pieces / "labels.tsv")}
    print(
        "| piece | where | model | pieces | phages against prokaryotes and plasmids, AUROC "
        "| all, AUROC | phages called | viruses called | others called | worst group of others |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for length in LENGTHS:
        for outside in (False, True):
            for folder in args.predicted:
                path = folder / f"pieces_{length}_contigs.tsv"
                if not path.exists():
                    continue
                rows = [row | labels[row["record"]] for row in table(path)]
                rows = [r for r in rows if r["group"].startswith("outside") == outside]
                if not rows:
                    continue
                cells = [f"{length:,} bp", "outside" if outside else "held out", folder.name]
                print("|", " | ".join([*cells, f"{len(rows):,}", *figures(rows)]), "|")
    print_unfamiliar(labels, args.predicted)
    print_genomes(args.dataset, [f for f in args.predicted if (f / GENOMES).exists()])


if __name__ == "__main__":
    main()
