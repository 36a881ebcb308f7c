"""What peers.sh needs of Python: the pieces from outside, and the table of all programs.

    python examples/lite/peers.py outside PIECES WORK
    python examples/lite/peers.py table PIECES PREDICTED WORK

A record counts as called virus where the network of geNomad gives virus the highest of its three
scores, and where Jaeger predicts phage. Jaeger was made for phages alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from outside import Row, figures, table

from virnucpro.io.records import Records

COMPARED = (500, 2100, 5000)  # bases


def labels_of(pieces: Path) -> dict[str, Row]:
    """Return what is known of each piece from outside, by its id."""
    rows = table(pieces / "labels.tsv")
    return {row["record"]: row for row in rows if row["group"].startswith("outside")}


def write_outside(pieces: Path, work: Path) -> None:
    """Write the pieces that are from outside, a file per length."""
    known = labels_of(pieces)
    for length in COMPARED:
        with (work / f"outside_{length}.fa").open("w", encoding="ascii") as stream:
            for record in Records(pieces / f"pieces_{length}.fa"):
                if record.id in known:
                    stream.write(f">{record.id}\n{record.sequence}\n")


def lite(predicted: Path, work: Path, length: int) -> Iterator[Row]:
    """Yield the calls of lite."""
    for row in table(predicted / f"pieces_{length}_contigs.tsv"):
        yield {name: row[name] for name in ("record", "virus_score", "call")}


def genomad(predicted: Path, work: Path, length: int) -> Iterator[Row]:
    """Yield the calls of the network of geNomad."""
    name = f"outside_{length}_nn_classification"
    for row in table(work / f"genomad_{length}" / name / f"{name}.tsv"):
        scores = {kind: float(row[f"{kind}_score"]) for kind in ("virus", "plasmid", "chromosome")}
        best = max(scores, key=scores.__getitem__)
        yield {"record": row["seq_name"], "virus_score": row["virus_score"], "call": best}


def jaeger(predicted: Path, work: Path, length: int) -> Iterator[Row]:
    """Yield the calls of Jaeger, which writes a blank for three underscores of an id."""
    for path in (work / f"jaeger_{length}").rglob(f"outside_{length}_jaeger.tsv"):
        for row in table(path):
            others = max(float(row[f"{kind}_score"]) for kind in ("bacteria", "eukarya", "archaea"))
            yield {
                "record": row["contig_id"].replace(" ", "___"),
                "virus_score": str(float(row["phage_score"]) - others),
                "call": "virus" if row["prediction"] == "phage" else "others",
            }


def print_table(pieces: Path, predicted: Path, work: Path) -> None:
    """Print how good the calls of all programs are, in Markdown."""
    known = labels_of(pieces)
    print(
        "| piece | program | pieces | phages against prokaryotes and plasmids, AUROC | all, AUROC "
        "| phages called | viruses called | others called | worst group of others |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for length in COMPARED:
        for program in (lite, genomad, jaeger):
            try:
                calls = list(program(predicted, work, length))
            except FileNotFoundError:
                continue
            rows = [row | known[row["record"]] for row in calls if row["record"] in known]
            if rows:
                cells = [f"{length:,} bp", program.__name__, f"{len(rows):,}", *figures(rows)]
                print("|", " | ".join(cells), "|")


if __name__ == "__main__":
    task, *folders = sys.argv[1:]
    (write_outside if task == "outside" else print_table)(*map(Path, folders))
