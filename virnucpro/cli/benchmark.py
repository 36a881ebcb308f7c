"""``virnucpro benchmark``: measures this program and other implementations on this machine."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

import virnucpro.cli.shared as shared
from virnucpro.contracts import Device, Json
from virnucpro.errors import UsageError, VirNucProError
from virnucpro.precision import (
    PRECISIONS,
    choose_precision,
    emulation_warnings,
    measured_precisions,
)
from virnucpro.store.guard import refuse_other_json

if TYPE_CHECKING:
    from virnucpro.benchmark.run import BenchmarkRequest

EPILOG = """\b
Examples:
  virnucpro benchmark
  virnucpro benchmark esm2_t33_650M_UR50D dnabert-s --precision bf16,fp8 --json here.json
  virnucpro benchmark esm2_t12_35M_UR50D --device cpu --mix 300 --threads 2
  virnucpro benchmark --stages --input contigs.fa
  virnucpro benchmark esm2_t36_3B_UR50D dnabert-s --weights real --accuracy contigs.fa

fair-esm, as version 1 runs it, and transformers are measured as well if they are installed.
"""
# Without MODEL: what predict takes; a CPU would need minutes per batch for the 3B.
MODELS = {
    "cuda": ("esm2_t36_3B_UR50D", "dnabert-s"),
    "cpu": ("esm2_t12_35M_UR50D", "dnabert-s"),
}
SEQUENCES = {"cuda": 1024, "cpu": 32}
WIDTH = 250  # columns, where the output goes to no terminal: nothing is wrapped there


def precisions(text: str) -> tuple[str, ...]:
    """Return ``fp32,bf16`` as a tuple, each precision once."""
    names = shared.separated(text) or [text]
    for name in names:
        if name not in PRECISIONS:
            *others, last = PRECISIONS
            raise click.BadParameter(
                f"{name!r}: expected {', '.join(others)} or {last}, as in fp32,bf16"
            )
    return tuple(names)


@click.command(
    epilog=EPILOG, short_help="Compare the speed of encoders and stages with other programs."
)
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option(
    "--weights",
    type=click.Choice(["random", "real"]),
    default="random",
    help="Random weights are made here; real weights are those that predict would load.",
)
@click.option(
    "--mix",
    type=click.Choice(["500", "300", "reads"]),
    default="500",
    help="Lengths of the sequences: frames of chunks of 500 or 300 bases, or reads of 150.",
)
@click.option(
    "-i",
    "--input",
    "source",
    type=shared.FILE,
    metavar="FASTA",
    help="Measure with the frames of this file instead.",
)
@click.option(
    "--sequences",
    type=shared.COUNT,
    help="Number of frames.  [default: 1024 on a GPU, 32 on the CPU]",
)
@click.option(
    "--precision",
    "requested_precisions",
    type=precisions,
    metavar="LIST",
    help=f"Precisions, of {','.join(PRECISIONS)}.  [default: all that are fast on the device]",
)
@click.option(
    "--budget", type=shared.COUNT, help="Tokens or sequences per batch, if there is one MODEL."
)
@click.option(
    "--compile/--no-compile",
    default=True,
    help="Compile the models for a GPU, as predict does for large inputs.",
)
@shared.device_options
@shared.threads_option
@click.option(
    "--seconds",
    type=shared.SECONDS,
    default=5.0,
    help="Seconds per implementation and stage; at least three calls are made.",
)
@click.option("--peers/--no-peers", default=True, help="Measure other implementations too.")
@click.option(
    "--stages",
    is_flag=True,
    help="Measure the stages on the host; without MODEL, measure only these.",
)
@click.option(
    "--accuracy",
    type=shared.FILE,
    metavar="FASTA",
    help="Compare each precision with fp32 on this file.",
)
@click.option(
    "--classifier",
    type=shared.FILE,
    help="With --accuracy: also compare the calls of this classifier.",
)
@click.option("--json", "saved", type=shared.FILE, help="Save all figures in this file.")
@shared.short_options
def benchmark(models: tuple[str, ...], **options: Any) -> None:
    """Measure encoders and host stages on this machine, and compare other implementations.

    MODEL is the name of an ESM-2 model, dnabert-s, or FAMILY:SIZE with a size such as 2x48x4
    (layers, width, heads), or FAMILY:PATH with --weights real. Every implementation computes with
    the same weights. One that gives other embeddings is reported and its speed is not measured.
    """
    refuse_other_json(options["saved"], ("machine", "workload", "models"), "--json")
    shared.say_at_start("preparing the benchmark")
    device = shared.measured_device(options)
    request = _request(models, device, options)
    from virnucpro.benchmark.run import disagreeing, run_benchmark

    document: dict[str, Json] = {}
    try:
        for so_far in run_benchmark(request, device, shared.say):
            document = so_far
    finally:  # also what was finished before an error or Ctrl-C
        if document:
            _show(document)
    if wrong := disagreeing(document):
        raise VirNucProError(
            f"other embeddings than ours in fp32 with the same weights: {'; '.join(wrong)}; their "
            f"speed was not measured. Please report it, with the versions of the packages"
        )


def _request(models: tuple[str, ...], device: Device, options: dict[str, Any]) -> BenchmarkRequest:
    from virnucpro.benchmark.encoders import MeasurementPlan
    from virnucpro.benchmark.models import parse_model
    from virnucpro.benchmark.run import BenchmarkRequest

    if options["classifier"] and not options["accuracy"]:
        raise UsageError("--classifier is for --accuracy: add --accuracy FASTA")
    alone = options["stages"] and not options["accuracy"]
    names = models or (() if alone else MODELS[device.kind])
    parsed_models = [parse_model(name, options["weights"]) for name in dict.fromkeys(names)]
    if options["budget"] and len({model.family for model in parsed_models}) > 1:
        raise UsageError(
            "--budget is tokens for ESM-2 and sequences for DNABERT-S: name models of one kind"
        )
    requested = options["requested_precisions"]
    precisions = (
        tuple(choose_precision(name, [device]) for name in requested)
        if requested
        else measured_precisions(device)
    )
    for precision in precisions:
        for warning in emulation_warnings(precision, [device]):
            shared.say(f"warning: {warning}")
    plan = MeasurementPlan(
        device.kind,
        precisions,
        options["budget"],
        options["seconds"],
        options["peers"],
        options["compile"],
    )
    return BenchmarkRequest(
        command=shlex.join(shared.command_line()),
        models=parsed_models,
        plan=plan,
        mix=options["mix"],
        source=options["source"],
        sequences=options["sequences"] or SEQUENCES[device.kind],
        stages=options["stages"],
        accuracy=options["accuracy"],
        classifier=options["classifier"],
        saved=options["saved"],
    )


def _show(document: dict[str, Json]) -> None:
    """Print the tables on standard output."""
    from rich.console import Console

    from virnucpro.benchmark.accuracy import FEWEST_CHUNKS, LEAST_AGREEMENT
    from virnucpro.benchmark.report import (
        accuracy_table,
        encoder_table,
        stage_table,
        why_not_claimed,
    )

    console = Console(width=None if sys.stdout.isatty() else WIDTH, markup=False, highlight=False)
    if document["models"]:
        console.print(encoder_table(document))
    if document["stages"]:
        console.print(stage_table(document))
    if document["accuracy"]:
        console.print(accuracy_table(document["accuracy"]))
        console.print(why_not_claimed(document["accuracy"], LEAST_AGREEMENT, FEWEST_CHUNKS))
