"""``virnucpro rcl plot``: draws predictions of the reactive center loop."""

from __future__ import annotations

from pathlib import Path

import click

import virnucpro.cli.shared as shared
from virnucpro.formatting import counted

EPILOG = """\b
Examples:
  virnucpro rcl predict proteins.fa -o results --residues
  virnucpro rcl plot results
  virnucpro rcl plot results P01011 P05545 --format svg -o figures
"""


@click.command(epilog=EPILOG, short_help="Draw the probability along each protein, and its RCL.")
@click.argument("results", type=shared.FILE, metavar="RESULTS")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option(
    "-o", "--output-dir", type=shared.FOLDER, help="Folder of the pictures.  [default: STEM_plots]"
)
@click.option(
    "--format", "suffix", type=click.Choice(["png", "svg", "pdf"]), default="png", help="Format."
)
@click.option("--most", type=shared.COUNT, default=100, help="Draw at most so many proteins.")
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
    from virnucpro.rcl.plots import draw_protein, read_predictions, residues_table

    table = residues_table(results)
    stem = table.name.removesuffix("_rcl_residues.tsv.gz")
    folder = output_dir or table.with_name(f"{stem}_plots")
    pictures = 0
    for protein, residues, threshold in read_predictions(table, frozenset(ids), most):
        path = folder / picture_name(protein.accession, suffix)
        content = draw_protein(protein, residues, threshold, suffix)
        shared.save_picture(path, content, force=force, option="--output-dir")
        pictures += 1
    shared.say(f"{counted(pictures, 'picture')} in {folder}")
    if pictures == most and not ids:
        shared.say(f"only the first {most:,} are drawn: use --most N, or name proteins")
