"""``virnucpro evaluate``: compares predictions with what is known about the records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import virnucpro.cli.shared as shared
from virnucpro.errors import UsageError
from virnucpro.formatting import printable
from virnucpro.settings import Share


@shared.command(
    short_help="Measure predictions on records of known origin; calibrate a classifier.",
)
@click.argument("predictions", type=shared.FILE, metavar="PREDICTIONS")
@shared.option("--labels", shared.FILE, "Table of what the records are.", required=True)
@shared.option(
    "-o --output-dir",
    shared.FOLDER,
    "Folder of the results.  [default: STEM_LEVEL_evaluation beside the predictions]",
)
@shared.option(
    "--level",
    ("frame", "chunk", "contig"),
    "Unit that is measured.  [default: chunk, or the unit of the table]",
)
@shared.option(
    "--threshold",
    Share,
    "Score from which a unit is called virus, 0 to 1.  [default: as predict called it, which "
    "is 0.5 for frames and chunks]",
)
@shared.option(
    "--calibrate CLASSIFIER",
    shared.FILE,
    "Calibrate the classifier that made these predictions: fit its temperature.",
)
@shared.option(
    "--output", shared.FILE, "File of the calibrated classifier, with the suffix .safetensors."
)
@shared.force_option
@shared.global_options
def evaluate(predictions: Path, labels: Path, **options: Any) -> None:
    """Measure PREDICTIONS: an output directory of predict, or one of its tables.

    Writes metrics with their intervals, overall, by group and by chunk length, and plots. A group
    is measured against all rows of the other label.

    Examples:
      virnucpro evaluate results --labels labels.tsv
      virnucpro evaluate results --labels dataset/genomes.tsv --level contig -o figures
      virnucpro evaluate results/test_merged/prediction_results.txt --labels test_frames.tsv
      virnucpro evaluate validation --labels labels.tsv --calibrate my.safetensors
          --output calibrated.safetensors

    The labels are a table with the columns record and label (virus or others), and optionally group
    and genome. The files genomes.tsv and PART_frames.tsv of a data set can be used as well.
    """
    output = options["output"]
    if (options["calibrate"] is None) != (output is None):
        raise UsageError("--calibrate and --output belong together: give both or neither")
    if output is not None and output.suffix != ".safetensors":
        raise UsageError(f"--output {output}: give it the suffix .safetensors")
    shared.say_at_start(f"evaluating {predictions}")
    from virnucpro.training.packages import require_packages

    require_packages(("sklearn", "pandas"), "evaluate")
    from virnucpro.evaluation.run import run_evaluation
    from virnucpro.events import Notice
    from virnucpro.ui.step_screen import StepScreen

    screen = StepScreen(shared.configuration().display)
    with shared.shown_on(screen):
        result = run_evaluation(
            predictions,
            labels,
            **options,
            notify=lambda text: screen.notice(Notice("info", text)),
        )
        for line in result.splitlines():
            screen.log.line(line)
    if not shared.quiet():
        click.echo(printable(result))
