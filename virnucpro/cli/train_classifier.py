"""``virnucpro train classifier``: trains a classifier on the features of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.training_options import training_device_options, training_devices
from virnucpro.contracts import Device
from virnucpro.errors import EXIT_OK, UsageError
from virnucpro.formatting import counted

if TYPE_CHECKING:
    from virnucpro.training.classifier.card import TrainingReport
    from virnucpro.training.classifier.trainer import TrainingSettings

EPILOG = """\b
Examples:
  virnucpro train classifier DATASET --output my.safetensors
  virnucpro train classifier DATASET --output my.safetensors --recipe modern --gpu-ids 0,1
  virnucpro train classifier DATASET --output my.safetensors --processes 4 --tensorboard runs/my
  virnucpro train classifier DATASET --output my.safetensors --resume

Then: virnucpro predict contigs.fa -m custom -p my.safetensors -e 500

""" + shared.exit_codes(0, 3, 4, 5, 6, 64, 65, 130)


@click.command(epilog=EPILOG, short_help="Train a classifier on an embedded data set.")
@click.argument("dataset", type=shared.FOLDER, metavar="DATASET")
@shared.option(
    "-o --output",
    shared.FILE,
    "File of the classifier, with the suffix .safetensors; its model card has the suffix .md.",
    required=True,
)
@shared.option(
    "--recipe",
    ("original", "modern"),
    "Train as version 1 did, or with AdamW on standardised inputs in larger batches.",
    default="original",
)
@shared.option("--hidden", shared.COUNT, "Number of hidden units.  [default: 512]")
@shared.option("--epochs", shared.COUNT, "Largest number of epochs.  [default: 200; modern: 40]")
@shared.option(
    "--batch-size N",
    click.IntRange(min=2),
    "Frames per step, over all processes.  [default: 32; modern: 512]",
)
@shared.option(
    "--learning-rate X",
    click.FloatRange(min=0, min_open=True),
    "Highest learning rate.  [default: 0.0002; modern: 0.001]",
)
@shared.option(
    "--patience", shared.COUNT, "Stop after N epochs without a lower validation loss.  [default: 5]"
)
@shared.option("--seed", shared.COUNT_OR_ZERO, "Seed of all random choices.  [default: 42]")
@training_device_options
@shared.option(
    "--precision", ("fp32", "bf16"), "Arithmetic of the matrix products.  [default: fp32]"
)
@shared.option("--tensorboard", shared.FOLDER, "Also write TensorBoard scalars to this folder.")
@shared.resume_option
@shared.force_option
@shared.no_progress_option
@shared.global_options
def classifier(dataset: Path, output: Path, **options: Any) -> int:
    """Train a classifier on DATASET, which train prepare made and train embed embedded.

    The validation part decides when the training stops, and calibrates the scores. The test part
    is only measured at the end. The same command gives the same file to the byte on the CPU.
    """
    settings = shared.configuration({name: options[name] for name in ("threads", "no_progress")})

    shared.say_at_start(f"training {output} on {dataset}")
    from virnucpro.precision import emulation_warnings
    from virnucpro.training.classifier.fitting import fit_classifier
    from virnucpro.ui.step_screen import TrainingScreen

    devices = training_devices(options, settings.machine.threads)
    training = _training_settings(options, devices)
    choices = {name: options[name] for name in ("resume", "force", "tensorboard")}
    screen = TrainingScreen(settings.display)
    warnings = [*settings.warnings, *emulation_warnings(training.precision, devices)]
    with shared.shown_on(screen, warnings) as interruption:
        report = fit_classifier(
            dataset, output, training, devices, screen.show, interruption, **choices
        )
    if not settings.display.quiet:
        click.echo("\n".join(_summary(report, output)))
    return EXIT_OK


def _training_settings(options: dict[str, Any], devices: Sequence[Device]) -> TrainingSettings:
    """Return the settings of the recipe with the options in their place."""
    from virnucpro.precision import choose_precision
    from virnucpro.training.classifier.trainer import RECIPES

    names = ("hidden", "epochs", "batch_size", "learning_rate", "patience", "seed", "precision")
    given = {name: options[name] for name in names if options[name] is not None}
    training = replace(RECIPES[options["recipe"]], **given)
    choose_precision(training.precision, devices)
    if len(devices) > training.batch_size:
        raise UsageError(
            f"--batch-size {training.batch_size} is less than a frame for each of {len(devices)} "
            f"processes: use fewer"
        )
    return training


def _summary(report: TrainingReport | None, output: Path) -> list[str]:
    from virnucpro.metrics.classification import metric_text
    from virnucpro.training.classifier.card import predict_commands

    if report is None:
        return [f"Nothing to do: {output} was already trained with these data and settings."]
    lines = [f"Trained for {counted(report.epochs, 'epoch')}; kept epoch {report.best_epoch}."]
    for part, metrics in report.metrics.items():
        lines.append(
            f"{part}: {metrics['frames']:,} frames, AUROC {metric_text(metrics['auroc'])}, "
            f"accuracy {metric_text(metrics['accuracy'])}, F1 {metric_text(metrics['f1'])}"
        )
    lines.append(f"Scores are calibrated with a temperature of {report.temperature:.4g}.")
    lines.append(f"Classifier: {output}; model card: {output.with_suffix('.md')}")
    commands = predict_commands(report, output)
    lines += [f"Next: {commands[0]}", *(f"      {command}" for command in commands[1:])]
    return lines
