"""``virnucpro demo``: an example input, classified with the model that is part of the package."""

from __future__ import annotations

import random
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.shared import FOLDER, command
from virnucpro.formatting import aligned
from virnucpro.stages.topology import COMPLEMENT
from virnucpro.tables import CONTIGS

SOURCE = Path(__file__).parents[1] / "data" / "example.fa"
"""Pieces of six INSDC records (accession and range stand in the headers): two phages and an
arenavirus, three bacteria. None of them, nor a near relative, was used to train ``lite``."""
VIRUSES = {"NC_002362.1", "OQ135103", "NC_077807.1"}
READS, READ = 34, 150  # reads, and bases per read
SHOWN = ("record", "length", "call", "virus_score", "tier")
ROWS = 12  # of the table that are printed
KINDS = {"viruses": "virus_*", "reads of these": "read_*_virus", "bacterial records": "*bacterium*"}
"""What is in the example, with a pattern for the ids."""


@command(
    click.Argument(["folder"], type=FOLDER, metavar="[DIR]", default=Path("virnucpro_demo")),
    common="device gpus threads no_progress",
)
def demo(folder: Path, **options: Any) -> int:
    """Make an example input and classify it.

    The example is DIR/example.fa: three viruses, three bacteria, short reads of them, and records
    that cannot be scored. A header says what its record is. It is classified with model type lite,
    and the results are in DIR/results.  [default of DIR: virnucpro_demo] No GPU and no download is
    needed.

    Examples:
      virnucpro demo my_demo --device cpu
    """
    settings = shared.configuration({**options, "model_type": "lite"})
    from virnucpro.cli.predict import carry_out
    from virnucpro.run.request import PredictionRequest

    example = folder / "example.fa"
    shared.save_output(example, example_fasta().encode(), force=False)
    request = PredictionRequest(
        str(example),
        folder / "results",
        settings,
        command=shared.command_line(),
    )
    code = carry_out(request)
    table = request.layout.contigs_table
    rows = list(CONTIGS.read(table, *SHOWN))
    parts = []
    for kind, ids in KINDS.items():
        calls = [call for record, _, call, *_ in rows if fnmatch(record, ids)]
        parts.append(f"{calls.count('virus')} of {len(calls)} {kind}")
    shared.tell(f"\nOf what the example holds, classified as viral are: {', '.join(parts)}.")
    # The last digits of a score depend on the processor.
    first = [[*some, f"{float(score):.3f}", tier] for *some, score, tier in rows[:ROWS]]
    lines = aligned([SHOWN, *first])
    shared.tell(f"\nThe first rows of {table.name}, some columns:", *(f"  {row}" for row in lines))
    return code


def example_fasta() -> str:
    """Return the example, the same on every machine."""
    chance = random.Random(2026)
    contigs, made = [], []
    for part in SOURCE.read_text(encoding="ascii").split(">")[1:]:
        head, *lines = part.splitlines()
        place, _, name = head.partition(" ")
        accession = place.split(":")[0]
        label = "virus" if accession in VIRUSES else "bacterium"
        contigs.append((f"{label} {accession}", "".join(lines)))
        made.append(f">{label}_{accession} {name}\n{contigs[-1][1]}\n")
    for number in range(1, READS + 1):
        origin, bases = chance.choice(contigs)
        label, accession = origin.split()
        start = chance.randrange(len(bases) - READ)
        read = bases[start : start + READ]
        if chance.random() < 0.5:
            read = read[::-1].translate(COMPLEMENT)
        made.append(f">read_{number}_{label} {accession}:{start + 1}\n{read}\n")
    return "".join([*made, f">unknown_bases\n{'N' * 600}\n", ">two_bases\nAC\n"])
