"""``virnucpro utils``: look at devices, check an input, write a configuration."""

from __future__ import annotations

import json
from pathlib import Path

import click

from virnucpro.cli.options import shared_options
from virnucpro.errors import UsageError
from virnucpro.formatting import memory_size


@click.group(short_help="List devices, check an input, write a configuration.")
def utils() -> None:
    """Small tools around a run."""


@utils.command("list-devices", epilog="Example: virnucpro utils list-devices --json")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@shared_options
def list_devices(as_json: bool) -> None:
    """Show the CPU and the GPUs that a run could use."""
    from virnucpro.devices import host_threads, visible_gpus
    from virnucpro.precision import choose_precision

    gpus = visible_gpus()
    if as_json:
        rows = [
            {"index": g.index, "name": g.name, "uuid": g.uuid, "memory": g.memory} for g in gpus
        ]
        click.echo(json.dumps({"cpu_threads": host_threads(), "gpus": rows}, indent=1))
        return
    click.echo(f"cpu     {host_threads()} threads")
    for gpu in gpus:
        click.echo(
            f"cuda:{gpu.index}  {gpu.name}, {memory_size(gpu.memory)}, "
            f"{choose_precision('auto', [gpu])}, {gpu.uuid}"
        )
    if not gpus:
        click.echo("no usable NVIDIA GPU (see nvidia-smi; torch must be a CUDA build)")


@utils.command(epilog="Example: virnucpro utils validate reads.fq.gz --expected-length 300")
@click.argument("source", type=click.Path(path_type=Path), metavar="INPUT")
@click.option("-e", "--expected-length", type=int, default=500, show_default=True, metavar="N")
@shared_options
def validate(source: Path, expected_length: int) -> None:
    """Read INPUT to its end and say whether predict would accept it. Writes nothing."""
    from virnucpro.io.census import take_census
    from virnucpro.stages.chunking import duplicates_error, input_notices

    census = take_census(source)
    if census.duplicates:
        raise duplicates_error(source, census)
    click.echo(
        f"{source}: fine. {census.records:,} records, {census.bases:,} bases, "
        f"median {census.median_length:,}, longest {census.longest:,}"
    )
    for notice in input_notices(census, expected_length):
        click.echo(f"warning: {notice}")


@utils.command(
    "generate-config", epilog="Example: virnucpro utils generate-config -o virnucpro.yaml"
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file; default: print.")
@click.option("-f", "--force", is_flag=True, help="Overwrite an existing file.")
@shared_options
def generate_config(output: Path | None, force: bool) -> None:
    """Write a configuration file with every key, its default and its meaning."""
    from virnucpro.configuration import default_yaml
    from virnucpro.store.disk import Disk

    if output is None:
        click.echo(default_yaml(), nl=False)
        return
    if output.exists() and not force:
        raise UsageError(f"{output} exists: choose another name, or overwrite it with --force")
    Disk().save(output, default_yaml().encode())
    click.echo(f"wrote {output}")
