"""``virnucpro utils``: lists devices, checks an input, writes a configuration or for MultiQC."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.shared import FILE, FOLDER, command, option
from virnucpro.contracts import Json
from virnucpro.errors import UsageError
from virnucpro.formatting import counted, memory_size
from virnucpro.settings import SHIPPED_MODELS

if TYPE_CHECKING:
    from virnucpro.results import PredictionRun


COLOURS = {"virus": "#c0392b", "undecided": "#e0a030", "nonvirus": "#3a6ea5", "unscored": "#a0a0a0"}
HEADERS = {
    "virus_records": {"title": "Virus", "format": "{:,.0f}"},
    "virus_share": {"title": "% virus", "description": "Of the bases"},
    "records": {"title": "Records", "format": "{:,.0f}"},
    "unscored": {"title": "Unscored", "format": "{:,.0f}"},
}


@command(common="json")
def list_devices(as_json: bool) -> None:
    """Show the CPU and the GPUs that a run could use.

    Example:
      virnucpro utils list-devices --json
    """
    from virnucpro.devices import host_threads, visible_gpus
    from virnucpro.precision import choose_precision

    gpus = visible_gpus()
    if as_json:
        rows = [
            {"index": g.index, "name": g.name, "uuid": g.uuid, "memory": g.memory} for g in gpus
        ]
        text = json.dumps({"cpu_threads": host_threads(), "gpus": rows}, indent=1)
        return shared.tell(text, always=True)
    lines = [
        f"cuda:{gpu.index}  {gpu.name}, {memory_size(gpu.memory)}, "
        f"{choose_precision('auto', [gpu])}, {gpu.uuid}"
        for gpu in gpus
    ] or ["There is no usable NVIDIA GPU: see nvidia-smi, and check torch.version.cuda."]
    return shared.tell(f"cpu     {host_threads()} threads", *lines, always=True)


@command(
    click.Argument(["source"], type=FILE, metavar="INPUT"),
    option("--input2 mates", FILE, "File of the second mates of pairs."),
    option("--interleaved", bool, "INPUT has both mates of pairs, one after the other."),
    common="model_type classifier chunk_length",
)
def validate(source: Path, mates: Path | None, interleaved: bool, **options: Any) -> None:
    """Say whether predict would accept an input.

    All of INPUT is read, and no file is written.

    Examples:
      virnucpro utils validate R1.fq.gz --input2 R2.fq.gz -m lite
    """
    from virnucpro.io.input_summary import summarise_input
    from virnucpro.io.pairs import InputFiles
    from virnucpro.stages.chunking import duplicate_ids_error, input_notices

    analysis = shared.configuration(options).analysis.resolved()
    assert analysis.chunk_length is not None
    shipped = SHIPPED_MODELS.get(analysis.model_type)
    lengths = (shipped and shipped.chunk_lengths) or (analysis.chunk_length,)
    files = InputFiles(source, mates, interleaved=interleaved)
    summary = summarise_input(files)
    if summary.duplicates:
        raise duplicate_ids_error(files, summary)
    noun = "pair" if files.paired else "record"
    shared.tell(
        f"{files} can be used: {counted(summary.records, noun)}, {counted(summary.bases, 'base')}, "
        f"median {summary.median_length:,}, longest {summary.longest:,}",
        *(f"warning: {n}" for n in input_notices(summary, lengths, analysis.chunk_length)),
        always=True,
    )


@command(
    option("-o --output", FILE, "Write to this file instead of standard output."),
    common="former_force",
)
def generate_config(output: Path | None) -> None:
    """Write a configuration file with every key.

    Each key is there with its default and its meaning.

    Example:
      virnucpro utils generate-config -o virnucpro.yaml
    """
    from virnucpro.configuration import default_yaml

    if output is None:
        return shared.tell(default_yaml().rstrip("\n"), always=True)
    shared.save_output(output, default_yaml().encode())
    shared.tell(f"wrote {output}", always=True)


@command(
    click.Argument(["folders"], type=FOLDER, nargs=-1, required=True, metavar="DIR..."),
    option("-o --output-dir", FOLDER, "Folder of the files to write.", required=True),
)
def multiqc(folders: tuple[Path, ...], output_dir: Path) -> None:
    """Write what MultiQC shows of finished runs.

    For each finished run in the output directories DIR there are two files with its name: columns
    of the general statistics, and a bar of the calls.

    Example:
      virnucpro utils multiqc results -o multiqc_input
      multiqc multiqc_input
    """
    from virnucpro.run.sample_list import finished_runs

    runs = [named for folder in folders for named in finished_runs(folder)]
    names = [name for name, _ in runs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"there are two runs with the name {twice!r}: name one of the folders")
    for name, run in runs:
        for section in _sections(name, run):
            path = output_dir / f"{name}_{section['id']}_mqc.json"
            shared.save_output(path, (json.dumps(section, indent=1) + "\n").encode())
            shared.say(f"wrote {path}")


def _sections(name: str, run: PredictionRun) -> Iterator[dict[str, Json]]:
    """Yield the "custom content" of a run (docs.seqera.io/multiqc); files of one id are joined."""
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
    general = {"id": "virnucpro_general", "plot_type": "generalstats"}
    yield general | {"headers": HEADERS, "data": {name: columns}}
    yield {
        "id": "virnucpro_calls",
        "section_name": "VirNucPro",
        "description": "Records by call. What could not be scored is not called.",
        "plot_type": "bargraph",
        "pconfig": {"id": "virnucpro_calls_plot", "title": "VirNucPro: calls", "ylab": "records"},
        "categories": {call: {"name": call, "color": colour} for call, colour in COLOURS.items()},
        "data": {name: {c: shown.calls.get(c, 0) for c in COLOURS} | {"unscored": unscored}},
    }


utils = click.Group(
    "utils",
    commands=[list_devices, validate, generate_config, multiqc],
    help="List devices, check an input, write a configuration.",
)
