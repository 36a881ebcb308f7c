"""``virnucpro demo``: an example input, classified with the model that is part of the package."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.shared import FOLDER, command
from virnucpro.formatting import aligned
from virnucpro.tables import CONTIGS, REGIONS

EXAMPLE = Path(__file__).parents[1] / "data" / "example.fa"
"""A small assembly, made by ``examples/demo/assembly.py``. An id says what its record is. None of
the genomes, nor a near relative, was used to train ``lite``."""
KINDS = {"viruses": "virus_*", "hosts": "host_*", "human satellites": "satellite_*"}
"""What is in the example, with a pattern for the ids."""
# Rac, of a record and its bases there: places in the chromosome as in examples/lite/regions.py.
PROPHAGE = "host_NC_000913.3:1399001-1446000", 13_000, 36_000
SHOWN = ("record", "length", "call", "virus_score", "tier", "regions")


@command(
    click.Argument(["folder"], type=FOLDER, metavar="[DIR]", default=Path("virnucpro_demo")),
    common="device gpus threads no_progress",
)
def demo(folder: Path, **options: Any) -> int:
    """Make an example input and classify it.

    The example is DIR/example.fa, a small assembly: viruses, bacteria, of which one has a prophage,
    an archaeon, human satellite DNA, and records that cannot be scored. An id says what its record
    is. It is classified with model type lite, and the results are in DIR/results.  [default of DIR:
    virnucpro_demo] No GPU and no download is needed.

    Examples:
      virnucpro demo my_demo --device cpu
    """
    settings = shared.configuration({**options, "model_type": "lite"})
    from virnucpro.cli.predict import carry_out
    from virnucpro.run.request import PredictionRequest

    example = folder / "example.fa"
    shared.save_output(example, EXAMPLE.read_bytes(), force=False)
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
    host, first, last = PROPHAGE
    places = REGIONS.read(request.layout.regions_table, "record", "start", "end")
    found = [f"{int(a):,} to {int(b):,}" for record, a, b in places if record == host]
    shared.tell(
        f"The prophage Rac is at about {first:,} to {last:,} of {host}. Viral regions there: "
        f"{', '.join(found) or 'none'}."
    )
    # The last digits of a score depend on the processor.
    shown = [[*some, score[:-3], tier, regions] for *some, score, tier, regions in rows]
    lines = aligned([SHOWN, *shown])
    shared.tell(f"\nThe records of {table.name}, some columns:", *(f"  {row}" for row in lines))
    return code
