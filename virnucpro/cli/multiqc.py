"""What MultiQC shows of a run, as its "custom content" (https://docs.seqera.io/multiqc).

MultiQC puts the data of all files with the same ``id`` together, so each run has files of its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from virnucpro.contracts import Json
from virnucpro.errors import UsageError
from virnucpro.results import PredictionRun
from virnucpro.run.sample_list import finished_runs
from virnucpro.store.disk import Disk
from virnucpro.store.work import refuse_other_json

COLOURS = {"virus": "#c0392b", "undecided": "#e0a030", "nonvirus": "#3a6ea5", "unscored": "#a0a0a0"}
_COLUMNS = {
    "virus_records": ("Virus", "Records that are called virus", "{:,.0f}", "Reds"),
    "virus_share": ("% virus", "Share of the bases that are called virus", "{:,.2f}", "Reds"),
    "records": ("Records", "Records of the input", "{:,.0f}", "Greys"),
    "unscored": ("Unscored", "Records that could not be scored", "{:,.0f}", "Oranges"),
}


def write_sections(folders: Sequence[Path], output: Path) -> Iterator[Path]:
    """Write the files of every run in ``folders``, and yield the path of each.

    Raises:
        UsageError: a folder has no finished run, two runs have the same name, or a file is in the
            way that is not of this program.
        InputError: a table is damaged.
        OutputError: a file cannot be written.
    """
    runs = [named for folder in folders for named in finished_runs(folder)]
    names = [name for name, _ in runs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"there are two runs with the name {twice!r}: name one of the folders")
    for name, run in runs:
        for section in _sections(name, run):
            path = output / f"{name}_{section['id']}_mqc.json"
            refuse_other_json(path, list(section), "--output-dir")
            Disk().save(path, (json.dumps(section, indent=1) + "\n").encode())
            yield path


def _sections(name: str, run: PredictionRun) -> Iterator[dict[str, Json]]:
    """Yield the columns of a run in the general statistics, and its bar: its records by call."""
    shown, bases = run.summary, Counter[str]()
    for row in run.contigs():
        bases[row.call] += row.length
    unscored = shown.records - shown.scored
    columns = {
        "virus_records": shown.calls.get("virus", 0),
        "virus_share": round(100 * bases["virus"] / max(bases.total(), 1), 4),
        "records": shown.records,
        "unscored": unscored,
    }
    keys = ("title", "description", "format", "scale")
    yield {
        "id": "virnucpro_general",
        "plot_type": "generalstats",
        "headers": {key: dict(zip(keys, texts, strict=True)) for key, texts in _COLUMNS.items()},
        "data": {name: columns},
    }
    yield {
        "id": "virnucpro_calls",
        "section_name": "VirNucPro",
        "description": "Records by call. What could not be scored is not called.",
        "plot_type": "bargraph",
        "pconfig": {"id": "virnucpro_calls_plot", "title": "VirNucPro: calls", "ylab": "records"},
        "categories": {call: {"name": call, "color": colour} for call, colour in COLOURS.items()},
        "data": {name: {c: shown.calls.get(c, 0) for c in COLOURS} | {"unscored": unscored}},
    }
