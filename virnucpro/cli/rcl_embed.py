"""``virnucpro rcl embed``: features of proteins by an ESM-2 model, for ``rcl train``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.rcl_options import (
    esm_model_option,
    max_length_option,
    others_option,
    serpins_option,
)
from virnucpro.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from virnucpro.settings import DisplaySettings

ESM_MODEL = "esm2_t33_650M_UR50D"  # that of the encoding esm2_650m
EPILOG = """\b
Examples:
  virnucpro rcl embed --serpins serpins.csv --others others.csv -o features
  virnucpro rcl train --encoding esm2_650m --precomputed features --serpins serpins.csv
      --others others.csv

""" + shared.exit_codes(0, 3, 4, 5, 6, 64, 65, 130)


@click.command(epilog=EPILOG, short_help="Compute features of proteins by an ESM-2 model.")
@click.option(
    "--encoding",
    type=click.Choice(["esm2", "esm2_650m"]),
    default="esm2_650m",
    help="With esm2, name the model with --esm-model.",
)
@esm_model_option
@serpins_option
@others_option
@click.option(
    "-o",
    "--output-dir",
    type=shared.FOLDER,
    default=Path("rcl_features"),
    help="Folder of the features.",
)
@max_length_option
@click.option(
    "--checkpoint-every",
    type=shared.COUNT,
    default=64,
    help="Proteins per file; a finished file is not computed again.",
)
@shared.setting_option("--esm-batch-size", "protein_batch")
@shared.device_options
@shared.setting_option("--cpu-workers", "cpu_workers")
@shared.precision_option
@shared.threads_option
@shared.resume_option
@shared.force_option
@shared.no_progress_option
@shared.global_options
def embed(**options: Any) -> int:
    """Compute the features of each residue of the proteins of tables, each protein once.

    The work is done by workers as in predict: the same command again computes only what is missing.
    """
    settings = shared.configuration(options)
    if options["encoding"] == "esm2" and not options["esm_model"]:
        raise UsageError("--encoding esm2 needs the model: --esm-model")
    computed = embedded(
        settings.display,
        options["serpins"],
        options["others"],
        options["max_length"],
        model=options["esm_model"] or ESM_MODEL,
        folder=options["output_dir"],
        machine=settings.machine,
        precision=settings.analysis.precision,
        per_file=options["checkpoint_every"],
        resume=options["resume"],
        force=options["force"],
    )
    if not settings.display.quiet:
        if not computed:
            click.echo("Nothing to compute: all features are there and intact.")
        click.echo(f"Features: {options['output_dir']}")
        click.echo(
            f"Next: virnucpro rcl train --encoding {options['encoding']} --precomputed "
            f"{options['output_dir']} --serpins {options['serpins']}"
        )
    return EXIT_OK


def embedded(
    display: DisplaySettings,
    serpins: Path,
    others: Path | None,
    max_length: int,
    *,
    folder: Path,
    **options: Any,
) -> int:
    """Compute features on a screen of their own; return the files that this start computed."""
    from virnucpro.rcl.embedding import embed_residues, feature_layout
    from virnucpro.rcl.proteins import read_proteins
    from virnucpro.ui.run_screen import RunScreen

    proteins, warnings = read_proteins(serpins, others, max_length)
    screen = RunScreen(display, feature_layout(folder))
    with shared.shown_on(screen, warnings) as interruption:
        return embed_residues(
            proteins, folder=folder, emit=screen.show, interruption=interruption, **options
        )
