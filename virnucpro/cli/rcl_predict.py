"""``virnucpro rcl predict`` and ``plot``: the reactive center loops of proteins, and pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.rcl_options import esm_model_option, shortest_option, threshold_option
from virnucpro.formatting import counted

PREDICT_EPILOG = """\b
Examples:
  virnucpro rcl predict proteins.fa --output-dir results
  virnucpro rcl predict proteome.faa.gz -o results --model blosum_unet --rcl-fasta
  virnucpro rcl predict proteins.fa -o results --model runs/run_003 --threshold 0.7
  zcat *.faa.gz | virnucpro rcl predict - -o results --residues

""" + shared.exit_codes(0, 3, 4, 5, 6, 64, 65, 130)


@click.command(epilog=PREDICT_EPILOG, short_help="Find the RCL in each protein of a file.")
@click.argument("proteins", metavar="PROTEINS")
@shared.option("-o --output-dir", shared.FOLDER, "Folder of the results.  [default: STEM_rcl]")
@shared.option(
    "-m --model MODEL",
    str,
    "Name of a shipped model (hmm, blosum_unet), or a model file, or the folder of a training "
    "(run_001).",
    default="hmm",
)
@esm_model_option
@threshold_option
@shared.option(
    "--min-consecutive",
    shared.COUNT,
    "Residues in a row that must be above the threshold; shorter runs are passed over.",
    default=12,
)
@shortest_option
@shared.option("--seq-fasta -seq_fasta", bool, "Write the proteins with an RCL as FASTA, too.")
@shared.option("--rcl-fasta -RCL_fasta", bool, "Write the RCLs as FASTA, too.")
@shared.option("--residues", bool, "Write the probability of each residue, too (needed by plot).")
@shared.option(
    "-b --batch-size", shared.COUNT, "Proteins per batch.  [default: as many as suit the device]"
)
@shared.option(
    "--chunk-size",
    shared.COUNT,
    "Proteins that are read before they are computed; more take more memory.",
    default=2000,
)
@shared.setting_option("--duplicate-ids", "duplicate_ids")
@shared.device_options
@shared.setting_option("--cpu-workers", "cpu_workers")
@shared.threads_option
@shared.force_option
@shared.no_progress_option
@shared.global_options
def predict(proteins: str, model: str, **options: Any) -> int:
    """Find the reactive center loop (RCL) in each protein of PROTEINS.

    PROTEINS is FASTA or FASTQ, plain, gzip, bz2 or xz; - is standard input. Every protein has a row
    in STEM_rcl.tsv, with its RCL or the reason why none was found.

    All visible GPUs compute, or the GPUs of --gpus, a block of --chunk-size proteins at a time. The
    results do not depend on how many there are.
    """
    settings = shared.configuration(options)
    from virnucpro.layout import Layout
    from virnucpro.rcl.finders import open_finder
    from virnucpro.rcl.predict import RclRequest, describe_record, run_rcl_prediction
    from virnucpro.ui.dashboard import RunScreen

    names = ("threshold", "min_consecutive", "min_rcl_length", "batch_size", "esm_model")
    request = RclRequest(
        proteins,
        options["output_dir"],
        open_finder(model, **{name: options[name] for name in names}),
        settings.machine,
        sequences=options["seq_fasta"],
        loops=options["rcl_fasta"],
        residues=options["residues"],
        duplicate_ids=settings.analysis.duplicate_ids,
        proteins_at_a_time=options["chunk_size"],
        force=options["force"],
        command=shared.command_line(),
    )
    screen = RunScreen(
        replace(settings.display, auto_log=False), Layout(request.root, request.stem)
    )
    with shared.shown_on(screen, settings.warnings) as interruption:
        record = run_rcl_prediction(request, screen.show, interruption)
    if not settings.display.quiet:
        click.echo("\n".join(describe_record(record, request.root)))
    return 0


PLOT_EPILOG = """\b
Examples:
  virnucpro rcl predict proteins.fa -o results --residues
  virnucpro rcl plot results
  virnucpro rcl plot results P01011 P05545 --format svg -o figures
"""


@click.command(epilog=PLOT_EPILOG, short_help="Draw the probability along proteins, and their RCL.")
@click.argument("results", type=shared.FILE, metavar="RESULTS")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@shared.option("-o --output-dir", shared.FOLDER, "Folder of the pictures.  [default: STEM_plots]")
@shared.option("--format suffix", ("png", "svg", "pdf"), "Format.", default="png")
@shared.option("--most", shared.COUNT, "Draw at most so many proteins.", default=100)
@shared.force_option
@shared.short_options
def plot(
    results: Path,
    ids: tuple[str, ...],
    output_dir: Path | None,
    suffix: str,
    most: int,
    force: bool,
) -> None:
    """Draw a picture of each protein of RESULTS: an output directory of rcl predict --residues.

    Drawn are the proteins with an RCL, or those with the IDs given. The upper panel has the
    probability along the whole protein, the lower one the residues of the RCL.
    """
    from virnucpro.layout import picture_name
    from virnucpro.rcl.plots import draw_protein, named_run, read_predictions

    run = named_run(results)
    folder = output_dir or run.folder / f"{run.stem}_plots"
    threshold = float(run.record["settings"]["threshold"])
    pictures = 0
    for protein, residues in read_predictions(run, frozenset(ids), most):
        path = folder / picture_name(protein.accession, suffix)
        content = draw_protein(protein, residues, threshold, suffix)
        shared.save_output(path, content, force=force, option="--output-dir")
        pictures += 1
    shared.say(f"{counted(pictures, 'picture')} in {folder}")
    if pictures == most and not ids:
        shared.say(f"only the first {most:,} are drawn: use --most N, or name proteins")
