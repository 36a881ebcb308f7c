"""``virnucpro predict``: from sequences to calls."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from virnucpro.cli.options import (
    COUNT,
    ModelTypes,
    config_path,
    displayed,
    encoder_options,
    machine_given,
    shared_options,
)
from virnucpro.configuration import default_configuration, load_configuration
from virnucpro.errors import EXIT_OK, EXIT_PARTIAL, UsageError
from virnucpro.settings import SHOWN_TYPES, DisplaySettings, override

EPILOG = """\b
Examples:
  virnucpro predict --input contigs.fa --output-dir results
  virnucpro predict reads.fq.gz -o results --gpus 0,1,2
  virnucpro predict contigs.fa -o results --model-type lite
  virnucpro predict --input contigs.fa --output-dir results --resume
  virnucpro predict contigs.fa -m custom -p my.safetensors -e 300
  zcat *.fa.gz | virnucpro predict - -o results --device cpu

Exit codes: 0 done, 2 partial (see failed_files.txt), 3 resume refused, 4 GPU missing or lost,
5 output directory in use, 6 disk full or unwritable, 64 usage or model file, 65 bad input data,
130/143 interrupted (resumable).
"""


@click.command(epilog=EPILOG, short_help="Decide for every sequence of a file whether it is viral.")
@click.argument("source", required=False, metavar="[INPUT]")
@click.option(
    "--input",
    "named_source",
    metavar="FILE",
    help="FASTA or FASTQ, plain, gzip, bz2 or xz; - is standard input.",
)
@click.option(
    "-o", "--output-dir", type=click.Path(path_type=Path), help="Default: STEM_predictions."
)
@click.option(
    "-m",
    "--model-type",
    type=ModelTypes(SHOWN_TYPES),
    help="Classifier; a number is the chunk length it was made for; lite needs no GPU and no "
    "download, and is less accurate.  [default: 500]",
)
@click.option(
    "-p",
    "--model-path",
    metavar="FILE",
    help="Classifier file (.pth or .safetensors) of type custom.",
)
@click.option(
    "-e", "--expected-length", type=click.IntRange(min=3), metavar="N", help="Bases a chunk."
)
@encoder_options
@click.option(
    "-b", "--batch-size", type=COUNT, metavar="N", help="Rows the classifier reads at a time."
)
@click.option(
    "--duplicate-ids",
    type=click.Choice(["error", "rename"]),
    help="What to do with record ids that occur twice.  [default: error]",
)
@click.option("--resume", is_flag=True, help="Go on with an interrupted run; retries what failed.")
@click.option("-f", "--force", is_flag=True, help="Start over; what was there is moved aside.")
@click.option("-k", "--keep-intermediate", is_flag=True, help="Keep chunks, frames and features.")
@click.option("--no-progress", is_flag=True, help="A plain line every 10 s instead of a dashboard.")
@click.option("--parallel", is_flag=True, help="Accepted; every visible GPU is used anyway.")
@shared_options
def predict(source: str | None, named_source: str | None, **options: Any) -> int:
    """Decide for every sequence of INPUT whether it is viral.

    Records are cut into chunks, their open reading frames are embedded with DNABERT-S and ESM-2,
    and a classifier scores each frame. A second run of the same command with --resume computes
    only what is missing.
    """
    if (source is None) == (named_source is None):
        raise UsageError("give the input once: virnucpro predict --input FILE (or just FILE)")
    path = config_path()
    configuration = load_configuration(path) if path else default_configuration()
    analysis = override(
        configuration.analysis,
        model_type=options["model_type"],
        classifier=options["model_path"],
        chunk_length=options["expected_length"],
        precision=options["precision"],
        duplicate_ids=options["duplicate_ids"],
    )
    machine = override(
        configuration.machine,
        **machine_given(options),
        classifier_rows=options["batch_size"],
        keep_intermediate=options["keep_intermediate"] or None,
    )
    display = displayed(configuration.display, progress=not options["no_progress"])
    from virnucpro.run.prepare import Request

    request = Request(
        source or named_source or "",
        options["output_dir"],
        analysis,
        machine,
        options["resume"],
        options["force"],
        tuple(sys.argv),
    )
    return _carry_out(request, display, configuration.warnings)


def _carry_out(request: Any, display: DisplaySettings, warnings: tuple[str, ...]) -> int:
    from virnucpro.cli.summary import summary_text
    from virnucpro.events import Notice
    from virnucpro.executors.signals import interruptible
    from virnucpro.run.predict import execute
    from virnucpro.ui.run_screen import RunScreen

    with interruptible() as interruption, RunScreen(display, request.layout) as screen:
        for warning in warnings:
            screen.show(Notice("warning", warning))
        summary = execute(request, screen.show, interruption=interruption)
    if not display.quiet:
        _say(summary_text(summary, request.layout.root))
    return EXIT_PARTIAL if summary.failed_records else EXIT_OK


def _say(text: str) -> None:
    """Print to standard output; where nobody reads it any more, the run counts all the same."""
    try:
        click.echo(text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
