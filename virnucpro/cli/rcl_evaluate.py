"""``virnucpro rcl evaluate``: measures models on proteins whose RCL is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.rcl_options import (
    esm_model_option,
    others_option,
    serpins_option,
    shortest_option,
    threshold_option,
)
from virnucpro.errors import EXIT_OK
from virnucpro.formatting import aligned

EPILOG = """\b
Examples:
  virnucpro rcl evaluate --serpins serpins_test.csv --others others_test.csv --model blosum_unet
  virnucpro rcl evaluate --serpins serpins.csv --others others.csv --model runs/run_001
      --split runs/run_001/split.tsv --dataset test --model hmm --aa

The results are tables, a picture and a report in the output directory.

""" + shared.exit_codes(0, 3, 4, 5, 6, 64, 65, 130)


@click.command(epilog=EPILOG, short_help="Measure models on proteins whose RCL is known.")
@shared.option(
    "-m --model MODEL models",
    str,
    "Name of a shipped model, or a model file or folder; give it several times to compare.",
    multiple=True,
    required=True,
)
@esm_model_option
@serpins_option
@others_option
@shared.option("--split", shared.FILE, "Table of parts, such as split.tsv of a training.")
@shared.option(
    "--dataset", ("test", "val", "train"), "Part that is measured, with --split.", default="test"
)
@shared.option(
    "-o --output-dir", shared.FOLDER, "Folder of the results.", default=Path("rcl_evaluation")
)
@threshold_option
@shared.option(
    "--min-consecutive",
    shared.COUNT,
    "Residues in a row that must be above the threshold; predict takes 12.",
    default=1,
)
@shortest_option
@shared.option("--aa", bool, "Print the metrics of residues, too.")
@shared.device_options
@shared.threads_option
@shared.force_option
@shared.no_progress_option
@shared.global_options
def evaluate(models: tuple[str, ...], **options: Any) -> int:
    """Measure models on proteins whose RCL is known, and on proteins that have none.

    By sequence: whether an RCL is found where there is one, and where. By residue: whether each
    residue is called rightly. All with intervals from resampled proteins.

    One device computes: the first of --gpus, or what --device names. The other GPUs are not used.
    """
    names = ("device", "gpus", "threads", "no_progress")
    settings = shared.configuration({name: options[name] for name in names})
    from virnucpro.executors.processes import settled_device

    device = settled_device(settings.machine)
    from virnucpro.rcl.evaluation import (
        RESIDUE_METRICS,
        SEQUENCE_METRICS,
        proteins_to_measure,
        run_rcl_evaluation,
        text_table,
    )
    from virnucpro.rcl.finders import open_finder
    from virnucpro.training.data.dataset import Part
    from virnucpro.training.packages import require_packages
    from virnucpro.ui.step_screen import TrainingScreen

    require_packages(["pandas"], "rcl evaluate")
    rule = {name: options[name] for name in ("threshold", "min_consecutive", "min_rcl_length")}
    esm_model = options["esm_model"]
    finders = [open_finder(name, esm_model=esm_model, **rule) for name in dict.fromkeys(models)]
    for finder in finders:
        finder.settle(device)
    parts: dict[str, Part] = {"test": "test", "val": "validation", "train": "train"}
    tables = (options["serpins"], options["others"], options["split"], parts[options["dataset"]])
    proteins, facts, warnings = proteins_to_measure(*tables)
    facts |= {name.replace("_", " "): value for name, value in rule.items()}
    screen = TrainingScreen(settings.display)
    advice = "nothing was written; run the same command again"
    folder, force = options["output_dir"], options["force"]
    with shared.shown_on(screen, [*settings.warnings, *warnings], advice=advice):
        evaluations = run_rcl_evaluation(
            finders, proteins, facts, folder, screen.show, screen, force=force
        )
    if not settings.display.quiet:
        shown = (*SEQUENCE_METRICS, *(RESIDUE_METRICS if options["aa"] else ()))
        click.echo("\n".join(aligned(text_table(evaluations, shown))))
        click.echo(f"The report is {options['output_dir'] / 'rcl_evaluation.md'}.")
    return EXIT_OK
