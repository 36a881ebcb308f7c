"""``virnucpro rcl plot``: draws predictions of the reactive center loop."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

import virnucpro.cli.shared as shared
from virnucpro.errors import UsageError
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
    if find_spec("matplotlib") is None:
        raise UsageError(
            "matplotlib is not installed, and plot needs it: pip install 'virnucpro[train]'"
        )
    from virnucpro.layout import checkpoint_folder
    from virnucpro.rcl.plots import draw_protein, read_predictions, residues_table
    from virnucpro.store.disk import Disk
    from virnucpro.store.guard import ExistingWork, WorkIdentity, admit_work, refuse_links

    table = residues_table(results)
    stem = table.name.removesuffix("_rcl_residues.tsv.gz")
    folder = output_dir or table.with_name(f"{stem}_plots")
    previous = checkpoint_folder(folder) / "plots.previous"
    refuse_links(previous)
    disk, pictures = Disk(), 0
    for protein in read_predictions(table, frozenset(ids), most):
        path = folder / protein.file_name(suffix)
        content = draw_protein(protein, suffix)
        pictures += 1
        if path.is_file() and not path.is_symlink() and path.read_bytes() == content:
            continue  # drawn before
        foreign = [path] if path.exists() or path.is_symlink() else []
        existing = ExistingWork(folder, previous, foreign_files=foreign)
        admit_work(WorkIdentity("the pictures", {}), existing, disk, force=force)
        disk.save(path, content, durable=False)
    shared.say(f"{counted(pictures, 'picture')} in {folder}")
    if pictures == most and not ids:
        shared.say(f"only the first {most:,} are drawn: use --most N, or name proteins")
