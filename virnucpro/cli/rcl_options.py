"""Options that several ``rcl`` commands have."""

from __future__ import annotations

import click

import virnucpro.cli.shared as shared

esm_model_option = click.option(
    "--esm-model",
    metavar="NAME",
    help="ESM-2 model of an encoding that needs one: a released name, a folder or a file.  "
    "[default: the released one of that size]",
)
serpins_option = click.option(
    "--serpins", type=shared.FILE, required=True, help="Table of proteins with an RCL (CSV)."
)
others_option = click.option(
    "--others", type=shared.FILE, help="Table of proteins without an RCL (CSV)."
)
max_length_option = click.option(
    "--max-length",
    type=shared.COUNT,
    default=1024,
    help="Residues above which training leaves a protein out.",
)
threshold_option = click.option(
    "--threshold",
    type=shared.SHARE,
    help="Probability above which a residue counts, 0 to 1.  [default: what the model says]",
)
shortest_option = click.option(
    "--min-rcl-length", type=shared.COUNT, default=7, help="Residues of the shortest RCL."
)
