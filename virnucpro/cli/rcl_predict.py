"""``virnucpro rcl predict``: finds the reactive center loop in proteins."""

from __future__ import annotations

from typing import Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.rcl_options import esm_model_option, shortest_option, threshold_option
from virnucpro.errors import UsageError

EPILOG = """\b
Examples:
  virnucpro rcl predict proteins.fa --output-dir results
  virnucpro rcl predict proteome.faa.gz -o results --model hmm --rcl-fasta
  virnucpro rcl predict proteins.fa -o results --model runs/run_003 --threshold 0.7
  zcat *.faa.gz | virnucpro rcl predict - -o results --residues

""" + shared.exit_codes(0, 3, 4, 5, 6, 64, 65, 130)


@click.command(epilog=EPILOG, short_help="Find the RCL in each protein of a file.")
@click.argument("proteins", metavar="PROTEINS")
@click.option(
    "-o", "--output-dir", type=shared.FOLDER, help="Folder of the results.  [default: STEM_rcl]"
)
@click.option(
    "-m",
    "--model",
    metavar="MODEL",
    help="Name of a shipped model, or a model file, or the folder of a training (run_001).  "
    "hmm, which needs the extra rcl, finds more of the distant serpins.  [default: blosum_unet]",
)
@esm_model_option
@threshold_option
@click.option(
    "--min-consecutive",
    type=shared.COUNT,
    default=12,
    help="Residues in a row that must be above the threshold; shorter runs are passed over.",
)
@shortest_option
@click.option(
    "--seq-fasta",
    "-seq_fasta",
    is_flag=True,
    help="Write the proteins with an RCL as FASTA, too.",
)
@click.option("--rcl-fasta", "-RCL_fasta", is_flag=True, help="Write the RCLs as FASTA, too.")
@click.option(
    "--residues", is_flag=True, help="Write the probability of each residue, too (needed by plot)."
)
@click.option(
    "-b",
    "--batch-size",
    type=shared.COUNT,
    help="Proteins per batch.  [default: as many as suit the device]",
)
@click.option(
    "--chunk-size",
    type=shared.COUNT,
    default=2000,
    help="Proteins that are read before they are computed; more take more memory.",
)
@shared.setting_option("--duplicate-ids", "duplicate_ids")
@shared.device_options
@shared.setting_option("--cpu-workers", "cpu_workers")
@shared.threads_option
@shared.force_option
@shared.no_progress_option
@shared.global_options
def predict(proteins: str, model: str | None, **options: Any) -> int:
    """Find the reactive center loop (RCL) in each protein of PROTEINS.

    PROTEINS is FASTA or FASTQ, plain, gzip, bz2 or xz; - is standard input. Every protein has a row
    in STEM_rcl.tsv, with its RCL or the reason why none was found.

    All visible GPUs compute, or those of --gpus, a block of --chunk-size proteins at a time. The
    results do not depend on how many there are.
    """
    settings = shared.configuration(
        {name: options[name] for name in ("device", "gpus", "cpu_workers", "threads")}
        | {name: options[name] for name in ("duplicate_ids", "no_progress")}
    )
    from virnucpro.executors.processes import settled_devices

    devices = settled_devices(settings.machine)
    from virnucpro.rcl.finders import DEFAULT_MODEL, open_finder
    from virnucpro.rcl.output import describe_summary
    from virnucpro.rcl.predict import run_rcl_prediction
    from virnucpro.rcl.request import RclRequest
    from virnucpro.ui.step_screen import StepScreen

    if options["batch_size"] and options["batch_size"] > options["chunk_size"]:
        raise UsageError("--batch-size is larger than --chunk-size: make it smaller")
    rule = {name: options[name] for name in ("min_consecutive", "min_rcl_length")}
    finder = open_finder(
        model or DEFAULT_MODEL,
        threshold=options["threshold"],
        batch_size=options["batch_size"],
        esm_model=options["esm_model"],
        **rule,
    )
    request = RclRequest(
        proteins,
        options["output_dir"],
        finder,
        devices,
        {"threshold": finder.threshold, **rule},
        sequences=options["seq_fasta"],
        loops=options["rcl_fasta"],
        residues=options["residues"],
        duplicate_ids=settings.analysis.duplicate_ids,
        proteins_at_a_time=options["chunk_size"],
        force=options["force"],
        command=shared.command_line(),
    )
    screen = StepScreen(settings.display)
    with shared.shown_on(
        screen, settings.warnings, advice="nothing was written; run the same command again"
    ):
        summary = run_rcl_prediction(request, screen, screen.say)
    if not settings.display.quiet:
        click.echo("\n".join(describe_summary(summary, request)))
    return 0
