"""``virnucpro rcl embed``: features of proteins by an ESM-2 model, for ``rcl train``."""

from __future__ import annotations

from dataclasses import replace
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
    from virnucpro.configuration import Configuration
    from virnucpro.rcl.configuration import RclConfiguration
    from virnucpro.rcl.embedding import RclEmbedRequest
    from virnucpro.rcl.features import ProteinFeatures
    from virnucpro.rcl.proteins import AnnotatedProtein

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
    tables = (options["serpins"], options["others"], options["max_length"])
    proteins = _proteins(tables)

    from virnucpro.rcl.embedding import RclEmbedRequest

    if options["encoding"] == "esm2" and not options["esm_model"]:
        raise UsageError("--encoding esm2 needs the model: --esm-model")
    request = RclEmbedRequest(
        proteins,
        options["esm_model"] or ESM_MODEL,
        options["output_dir"],
        settings.machine,
        settings.analysis.precision,
        options["checkpoint_every"],
        options["resume"],
        options["force"],
    )
    computed = _embedded(request, settings)
    if not settings.display.quiet:
        if not computed:
            click.echo("Nothing to compute: all features are there and intact.")
        click.echo(f"Features: {options['output_dir']}")
        click.echo(
            f"Next: virnucpro rcl train --encoding {options['encoding']} --precomputed "
            f"{options['output_dir']} --serpins {options['serpins']}"
        )
    return EXIT_OK


def features_for_training(
    options: dict[str, Any],
    file: RclConfiguration,
    tables: tuple[Path, Path | None, int],
    runs: Path,
    settings: Configuration,
) -> ProteinFeatures:
    """Return the features that ``--precomputed`` names; without, compute them beside the runs.

    ``tables`` are those of proteins with and without an RCL, and the length of the longest.
    """
    from virnucpro.rcl.embedding import RclEmbedRequest
    from virnucpro.rcl.stored_features import open_features

    if options["precomputed"]:
        return open_features(options["precomputed"])
    model = options["esm_model"]
    if options["encoding"] == "esm2":
        model = model or file.esm_model
    name = model or ESM_MODEL
    folder = runs / f"features_{Path(name).name}"
    device = options["device"] or file.device or "auto"
    machine = replace(settings.machine, device="cpu" if options["processes"] else device)
    if options["gpu_ids"]:
        machine = replace(machine, gpus=options["gpu_ids"])
    _embedded(RclEmbedRequest(_proteins(tables), name, folder, machine, resume=True), settings)
    return open_features(folder)


def _proteins(tables: tuple[Path, Path | None, int]) -> list[AnnotatedProtein]:
    from virnucpro.rcl.proteins import read_protein_table

    serpins, others, longest = tables
    read = [read_protein_table(serpins, with_rcl=True, max_length=longest)]
    if others is not None:
        read.append(read_protein_table(others, with_rcl=False, max_length=longest))
    for table in read:
        if warning := table.warning():
            shared.say(f"warning: {warning}")
    return [protein for table in read for protein in table.proteins]


def _embedded(request: RclEmbedRequest, settings: Configuration) -> int:
    """Compute features on a screen of their own; return the files that this start computed."""
    from virnucpro.rcl.embedding import FeatureLayout, embed_residues
    from virnucpro.ui.run_screen import RunScreen

    screen = RunScreen(settings.display, FeatureLayout(request.folder.absolute()))
    with shared.shown_on(screen, settings.warnings) as interruption:
        return embed_residues(request, screen.show, interruption)
