"""``virnucpro train lite``: small encoders and their classifier, end to end, on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from virnucpro.cli.options import COUNT, config_path, displayed, shared_options
from virnucpro.configuration import default_configuration, load_configuration
from virnucpro.errors import Interrupted

EPILOG = """\b
Examples:
  virnucpro train prepare genomes.tsv -o data -e 500,300,150 --stride 250 --no-balance
  virnucpro train lite data --output-dir my_lite

Then: virnucpro predict contigs.fa -m lite -c my_lite.yaml, where my_lite.yaml names the three
files (docs/training.md).

Exit codes: 0 done (or already there), 3 another training is there, 6 disk full or unwritable,
64 usage, 65 damaged data, 130/143 interrupted (the same command goes on).
"""


@click.command(epilog=EPILOG, short_help="Train small encoders and their classifier, on the CPU.")
@click.argument("dataset", type=click.Path(path_type=Path), metavar="DATASET")
@click.option(
    "-o",
    "--output-dir",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder of the encoders and the classifier.",
)
@click.option("--steps", type=COUNT, metavar="N", help="Batches.  [default: as for the shipped]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N")
@click.option(
    "-t", "--threads", type=COUNT, metavar="N", help="Host threads.  [default: all cores]"
)
@click.option("-f", "--force", is_flag=True, help="Start over; what was there is overwritten.")
@shared_options
def lite(
    dataset: Path,
    output_dir: Path,
    steps: int | None,
    seed: int,
    threads: int | None,
    force: bool,
) -> int:
    """Train an encoder pair like the one of model type lite, from DATASET alone.

    Both encoders and the classifier are trained together on open reading frames of all chunk
    lengths of DATASET; its validation part calibrates the scores. No GPU is needed. An interrupted
    training goes on with the same command.
    """
    import torch

    from virnucpro.training.dataset import Dataset
    from virnucpro.training.lite import LiteRecipe
    from virnucpro.training.lite_run import check_packages, fit_lite
    from virnucpro.ui.progress import Progress

    check_packages()
    if threads:
        torch.set_num_threads(threads)
    path = config_path()
    configuration = load_configuration(path) if path else default_configuration()
    display = displayed(configuration.display, progress=True)
    recipe = LiteRecipe(seed=seed) if steps is None else LiteRecipe(steps=steps, seed=seed)
    from virnucpro.executors.signals import interruptible

    try:
        with interruptible(), Progress(display) as progress:
            facts = fit_lite(
                Dataset(dataset), output_dir, recipe, progress, command=sys.argv, force=force
            )
    except Interrupted as stop:
        raise Interrupted(stop.signal_number, "run the same command again to go on") from stop
    if display.level not in ("WARNING", "ERROR"):
        if facts is None:
            click.echo(f"It was there already, of the same recipe and data: {output_dir}")
            return 0
        for part, lengths in facts["chunk_auroc"].items():
            for length, row in lengths.items():
                click.echo(
                    f"{part}, {length} bp: AUROC {row['auroc']} of {row['chunks']:,} chunks, "
                    f"{row['virus']:,} of them virus"
                )
        click.echo(f"Encoders, classifier and lite.json are in {output_dir}")
    return 0
