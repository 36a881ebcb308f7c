"""``virnucpro utils``: lists devices, checks an input, writes a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.shared import FILE, command, option
from virnucpro.formatting import counted, memory_size
from virnucpro.settings import SHIPPED_MODELS


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
    from virnucpro.io.inputs import InputFiles, summarise_input
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
        *(f"warning: {n}" for n in input_notices(summary, lengths)),
        always=True,
    )


@command(
    option("-o --output", FILE, "Write to this file instead of standard output."),
    common="replace",
)
def generate_config(output: Path | None, *, force: bool) -> None:
    """Write a configuration file with every key.

    Each key is there with its default and its meaning.

    Example:
      virnucpro utils generate-config -o virnucpro.yaml
    """
    from virnucpro.configuration import default_yaml

    if output is None:
        return shared.tell(default_yaml().rstrip("\n"), always=True)
    shared.save_output(output, default_yaml().encode(), force=force)
    shared.tell(f"wrote {output}", always=True)


utils = click.Group(
    "utils",
    commands=[list_devices, validate, generate_config],
    help="List devices, check an input, write a configuration.",
)
