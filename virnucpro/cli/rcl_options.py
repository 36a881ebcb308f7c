"""Options that several ``rcl`` commands have."""

from __future__ import annotations

import virnucpro.cli.shared as shared

esm_model_option = shared.option(
    "--esm-model NAME",
    str,
    "ESM-2 model of an encoding that needs one: a released name, a folder or a file.  "
    "[default: the released one of that size]",
)
serpins_option = shared.option(
    "--serpins", shared.FILE, "Table of proteins with an RCL (CSV).", required=True
)
others_option = shared.option("--others", shared.FILE, "Table of proteins without an RCL (CSV).")
max_length_option = shared.option(
    "--max-length",
    shared.COUNT,
    "Residues above which training leaves a protein out.",
    default=1024,
)
threshold_option = shared.option(
    "--threshold",
    shared.SHARE,
    "Probability above which a residue counts, 0 to 1.  [default: what the model says]",
)
shortest_option = shared.option(
    "--min-rcl-length", shared.COUNT, "Residues of the shortest RCL.", default=7
)
