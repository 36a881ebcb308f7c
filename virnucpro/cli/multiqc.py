"""What MultiQC shows of a run, as its "custom content" (https://docs.seqera.io/multiqc).

MultiQC puts the data of all files with the same ``id`` together, so each run has files of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from virnucpro.contracts import Json
from virnucpro.errors import UsageError
from virnucpro.results import PredictionRun
from virnucpro.run.sample_list import finished_runs
from virnucpro.store.disk import Disk
from virnucpro.store.work import refuse_other_json

COLOURS = {"virus": "#c0392b", "undecided": "#e0a030", "nonvirus": "#3a6ea5", "unscored": "#a0a0a0"}


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
    disk = Disk()
    for name, run in runs:
        calls = bases_by_call(run)
        for section in (general_statistics(name, run, calls), call_bars(name, run)):
            path = output / f"{name}_{section['id']}_mqc.json"
            refuse_other_json(path, list(section), "--output-dir")
            disk.save(path, (json.dumps(section, indent=1) + "\n").encode())
            yield path


def bases_by_call(run: PredictionRun) -> dict[str, int]:
    """Return the bases of the records of each call.

    Raises:
        InputError: the table of records is damaged.
    """
    bases = dict.fromkeys(COLOURS, 0)
    for row in run.contigs():
        bases[row.call] = bases.get(row.call, 0) + row.length
    return bases


def general_statistics(name: str, run: PredictionRun, bases: dict[str, int]) -> dict[str, Json]:
    """Return the columns of a run in the general statistics; ``bases`` are those of each call."""
    shown = run.summary
    total = sum(bases.values())
    share = 100 * bases["virus"] / total if total else 0.0
    columns = [
        ("virus_records", "Virus", "Records that are called virus", "{:,.0f}", "Reds"),
        ("virus_share", "% virus", "Share of the bases that are called virus", "{:,.2f}", "Reds"),
        ("records", "Records", "Records of the input", "{:,.0f}", "Greys"),
        ("unscored", "Unscored", "Records that could not be scored", "{:,.0f}", "Oranges"),
    ]
    return {
        "id": "virnucpro_general",
        "plot_type": "generalstats",
        "headers": {
            key: {"title": title, "description": text, "format": form, "scale": scale}
            for key, title, text, form, scale in columns
        },
        "data": {
            name: {
                "virus_records": shown.calls.get("virus", 0),
                "virus_share": round(share, 4),
                "records": shown.records,
                "unscored": shown.records - shown.scored,
            }
        },
    }


def call_bars(name: str, run: PredictionRun) -> dict[str, Json]:
    """Return the bar of a run: its records by call."""
    shown = run.summary
    counts = {call: shown.calls.get(call, 0) for call in COLOURS}
    counts["unscored"] = shown.records - shown.scored
    return {
        "id": "virnucpro_calls",
        "section_name": "VirNucPro",
        "description": "Records by call. What could not be scored is not called.",
        "plot_type": "bargraph",
        "pconfig": {"id": "virnucpro_calls_plot", "title": "VirNucPro: calls", "ylab": "records"},
        "categories": {call: {"name": call, "color": colour} for call, colour in COLOURS.items()},
        "data": {name: counts},
    }
