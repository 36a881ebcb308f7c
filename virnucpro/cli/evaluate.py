"""``virnucpro evaluate``: compares predictions with what is known about the records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from virnucpro.cli.options import (
    force_option,
    quiet,
    shared_options,
)
from virnucpro.errors import UsageError

EPILOG = """\b
Examples:
  virnucpro evaluate results --labels labels.tsv
  virnucpro evaluate results --labels dataset/genomes.tsv --level contig -o figures
  virnucpro evaluate results/test_merged/prediction_results.txt --labels test_frames.tsv
  virnucpro evaluate validation --labels labels.tsv --calibrate my.safetensors
      --output calibrated.safetensors

The labels are a table with the columns record and label (virus or others), and optionally group
and genome. The files genomes.tsv and PART_frames.tsv of a data set can be used as well. See
docs/evaluation.md.
"""


@click.command(
    epilog=EPILOG,
    short_help="Measure predictions on records of known origin; calibrate a classifier.",
)
@click.argument("predictions", type=click.Path(path_type=Path), metavar="PREDICTIONS")
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Table of what the records are.",
)
@click.option(
    "-o",
    "--output-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the results.  [default: STEM_LEVEL_evaluation]",
)
@click.option(
    "--level",
    type=click.Choice(["frame", "chunk", "contig"]),
    help="Unit that is measured.  [default: chunk, or the unit of the table]",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    metavar="X",
    help="Score from which a unit is called virus, 0 to 1.",
)
@click.option(
    "--calibrate",
    type=click.Path(path_type=Path),
    metavar="CLASSIFIER",
    help="Calibrate the classifier that made these predictions: fit its temperature.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File of the calibrated classifier, with the suffix .safetensors.",
)
@force_option
@shared_options
def evaluate(predictions: Path, labels: Path, **options: Any) -> None:
    """Measure PREDICTIONS: an output directory of predict, or one of its tables.

    Writes metrics with their intervals, overall, by group and by chunk length, and plots. A group
    is measured against all rows of the other label.
    """
    _check_options(**{name: options[name] for name in ("calibrate", "output")})
    _check_installed()
    from virnucpro.evaluation.run import EvaluationRequest, run_evaluation
    from virnucpro.formatting import printable

    def notify(text: str) -> None:
        if not quiet():
            click.echo(printable(text), err=True)

    result = run_evaluation(EvaluationRequest(predictions, labels, **options), notify)
    if not quiet():
        click.echo(printable(result))


def _check_options(*, calibrate: Path | None, output: Path | None) -> None:
    if (calibrate is None) != (output is None):
        raise UsageError("--calibrate and --output belong together: give both or neither")
    if output is not None and output.suffix != ".safetensors":
        raise UsageError(f"--output {output}: give it the suffix .safetensors")


def _check_installed() -> None:
    from importlib.util import find_spec

    for name, package in (("sklearn", "scikit-learn"), ("matplotlib", "matplotlib")):
        if find_spec(name) is None:
            raise UsageError(
                f"{package} is not installed, and evaluate needs it: pip install 'virnucpro[train]'"
            )
