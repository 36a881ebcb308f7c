"""``virnucpro train lite``: trains small encoders and their classifier on the CPU."""

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
  virnucpro train prepare genomes.tsv -o data -e 500,300,150 --stride 250 --no-balance
  virnucpro train lite data --output-dir my_lite
  virnucpro train lite data --output-dir trial --steps 500 --threads 4

Then: virnucpro predict contigs.fa -m custom -p my_lite/lite_classifier.safetensors -e 500
-c my_lite.yaml, where my_lite.yaml names the two encoders:

\b
  features:
    dnabert: {model_name: my_lite/lite_nucleotide.safetensors}
    esm: {model_name: my_lite/lite_protein.safetensors}

""" + shared.exit_codes(0, 3, 5, 6, 64, 65, 130)


@click.command(epilog=EPILOG, short_help="Train small encoders and their classifier, on the CPU.")
@click.argument("dataset", type=shared.FOLDER, metavar="DATASET")
@click.option(
    "-o",
    "--output-dir",
    type=shared.FOLDER,
    required=True,
    help="Folder of the encoders and the classifier.",
)
@click.option(
    "--steps", type=shared.COUNT, help="Number of batches.  [default: that of model type lite]"
)
@shared.seed_option
@shared.threads_option
@shared.force_option
@shared.global_options
def lite(
    dataset: Path,
    output_dir: Path,
    steps: int | None,
    seed: int,
    threads: int | None,
    force: bool,
) -> int:
    """Train two small encoders and a classifier, as those of model type lite, on DATASET.

    Both encoders and the classifier are trained together on open reading frames of all chunk
    lengths of DATASET. The validation part calibrates the scores. No GPU is needed. The same
    command continues an interrupted training.
    """
    shared.say_at_start(f"training lite encoders on {dataset}")
    import torch

    from virnucpro.training.data.dataset import Dataset
    from virnucpro.training.lite.fitting import check_packages, fit_lite
    from virnucpro.training.lite.trainer import LiteTrainingSettings
    from virnucpro.ui.step_screen import StepScreen

    check_packages()
    if threads:
        torch.set_num_threads(threads)
    loaded = shared.configuration()
    display = loaded.display
    settings = LiteTrainingSettings(seed=seed)
    if steps is not None:
        settings = replace(settings, steps=steps)
    same = "the same command again without --force" if force else "the same command again"
    screen = StepScreen(display)
    with shared.shown_on(screen, loaded.warnings, advice=f"run {same} to continue") as interruption:
        report = fit_lite(
            Dataset(dataset), output_dir, settings, screen, interruption=interruption, force=force
        )
        if report is not None and report["temperature"] is None:
            screen.warn("no validation frames of both labels: the scores are not calibrated")
    if not display.quiet:
        click.echo("\n".join(_summary(report, Dataset(dataset).lengths()[0], output_dir)))
    return 0


def _summary(report: Mapping[str, Any] | None, length: int, output_dir: Path) -> list[str]:
    """Return sentences on how good the encoders are, and how to use them."""
    from virnucpro.training.lite.admission import LiteFiles

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
    files = LiteFiles(output_dir)
    names = [json.dumps(str(path)) for path in (files.nucleotide, files.protein)]
    classifier = shlex.quote(str(files.classifier))
    return [
        *lines,
        f"Encoders, classifier and lite.json are in {output_dir}",
        f"Next: virnucpro predict contigs.fa -m custom -p {classifier} -e {length} -c my_lite.yaml",
        "with this in my_lite.yaml:",
        "features:",
        f"  dnabert: {{model_name: {names[0]}}}",
        f"  esm: {{model_name: {names[1]}}}",
    ]
