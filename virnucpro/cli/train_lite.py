"""``virnucpro train lite``: trains a small encoder and its classifier on the CPU."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import virnucpro.cli.shared as shared

EPILOG = """\b
Examples:
  virnucpro train prepare genomes.tsv -o data --content records -e 500,300,150
  virnucpro train lite data --output-dir my_lite
  virnucpro train lite data --output-dir trial --steps 500 --threads 4
  virnucpro train lite more --output-dir better --start-from my_lite/lite_encoder.safetensors
  virnucpro predict data/train_records.fa -o found -m lite
  virnucpro train lite data --output-dir cleaner --mask found/train_records_regions.tsv

Then: virnucpro predict contigs.fa -m custom -p my_lite/lite_classifier.safetensors -e 500
-c my_lite.yaml, where my_lite.yaml names the encoder:

\b
  features:
    dnabert: {model_name: my_lite/lite_encoder.safetensors}

""" + shared.exit_codes(0, 3, 5, 6, 64, 65, 130)


@click.command(epilog=EPILOG, short_help="Train a small encoder and its classifier, on the CPU.")
@click.argument("dataset", type=shared.FOLDER, metavar="DATASET")
@shared.option(
    "-o --output-dir", shared.FOLDER, "Folder of the encoder and the classifier.", required=True
)
@shared.option("--steps", shared.COUNT, "Number of batches.  [default: that of model type lite]")
@shared.option(
    "--start-from ENCODER",
    shared.FILE,
    "Begin with the weights of the lite encoder of an earlier training.",
)
@shared.option(
    "--learning-rate X",
    click.FloatRange(min=0, min_open=True),
    "Highest learning rate.  [default: that of model type lite]",
)
@shared.option(
    "--mask REGIONS",
    shared.FILE,
    "Do not train on the regions that this table lists in records labelled others, such as "
    "proviruses. It has the columns record, start and end, as STEM_regions.tsv of predict. With a "
    "column group, regions that have a name there are drawn as a group of that name.",
)
@shared.seed_option
@shared.threads_option
@shared.force_option
@shared.global_options
def lite(
    dataset: Path,
    output_dir: Path,
    steps: int | None,
    start_from: Path | None,
    learning_rate: float | None,
    mask: Path | None,
    seed: int,
    threads: int | None,
    force: bool,
) -> int:
    """Train a small encoder and a classifier, as those of model type lite, on DATASET.

    DATASET holds whole records (train prepare --content records). Encoder and classifier are
    trained together on pieces drawn from them, of all chunk lengths of DATASET. The validation part
    calibrates the scores. No GPU is needed. The same command continues an interrupted training.
    """
    shared.say_at_start(f"training a lite encoder on {dataset}")
    import torch

    from virnucpro.training.data.dataset import Dataset
    from virnucpro.training.lite.fitting import fit_lite
    from virnucpro.training.lite.trainer import LiteTrainingSettings
    from virnucpro.ui.step_screen import TrainingScreen

    if threads:
        torch.set_num_threads(threads)
    loaded = shared.configuration()
    display = loaded.display
    settings = LiteTrainingSettings(seed=seed)
    if steps is not None:
        settings = replace(settings, steps=steps)
    if learning_rate is not None:
        settings = replace(settings, learning_rate=learning_rate)
    same = "the same command again without --force" if force else "the same command again"
    screen = TrainingScreen(display)
    with shared.shown_on(screen, loaded.warnings, advice=f"run {same} to continue") as interruption:
        report = fit_lite(
            Dataset(dataset),
            output_dir,
            settings,
            screen.show,
            screen,
            interruption,
            start=start_from,
            mask=mask,
            force=force,
        )
        if report is not None and report["temperature"] is None:
            screen.warn("no validation records of both labels: the scores are not calibrated")
    if not display.quiet:
        click.echo("\n".join(_summary(report, Dataset(dataset).lengths()[0], output_dir)))
    return 0


def _summary(report: Mapping[str, Any] | None, length: int, output_dir: Path) -> list[str]:
    """Return sentences on how good the encoder is, and how to use them."""
    from virnucpro.training.lite.fitting import training_files

    if report is None:
        return [f"Nothing to do: {output_dir} was already trained with these data and settings."]
    lines = []
    for part, lengths in report["chunk_auroc"].items():
        for bases, row in lengths.items():
            auroc = "not defined" if row["auroc"] is None else row["auroc"]
            lines.append(
                f"{part}, {bases} bp: AUROC {auroc} of {row['chunks']:,} chunks, "
                f"{row['virus']:,} of them virus"
            )
    encoder_file, _, classifier_file = training_files(output_dir).results
    encoder, classifier = json.dumps(str(encoder_file)), shlex.quote(str(classifier_file))
    return [
        *lines,
        f"Encoder, classifier and lite.json are in {output_dir}",
        f"Next: virnucpro predict contigs.fa -m custom -p {classifier} -e {length} -c my_lite.yaml",
        "with this in my_lite.yaml:",
        "features:",
        f"  dnabert: {{model_name: {encoder}}}",
    ]
