"""``virnucpro plot``: draws the track of one record as a picture."""

from __future__ import annotations

from pathlib import Path

import click

import virnucpro.cli.shared as shared
from virnucpro.errors import UsageError

FORMATS = ("png", "svg")


@shared.command(short_help="Draw the scores along one record.")
@click.argument("folder", metavar="DIR", type=shared.FOLDER)
@shared.option("--record ID", str, "The record to draw.", required=True)
@shared.option("--stem STEM", str, "The run, where DIR holds several.")
@shared.option(
    "--format chosen", FORMATS, "Format.  [default: that of the name of --output, or else png]"
)
@shared.option("-o --output", shared.FILE, "The picture.  [default: STEM_plots/ID.png]")
@shared.force_option
@shared.short_options
def plot(
    folder: Path,
    record: str,
    stem: str | None,
    chosen: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Draw the scores of all chunks along a record of a finished run in DIR, with its regions.

    Examples:
      virnucpro plot results --record contig_17
      virnucpro plot results --record contig_17 --format svg -o contig_17.svg
    """
    from virnucpro.layout import Layout, picture_name
    from virnucpro.report.tracks import find_track, track_picture
    from virnucpro.results import open_run

    named = output.suffix.lower().removeprefix(".") if output else ""
    suffix = chosen or named or FORMATS[0]
    if suffix not in FORMATS or named not in ("", suffix):
        raise UsageError(f"--output {output}: the name must end in .png or .svg, as --format says")
    run = open_run(folder, stem)
    track = find_track(run, record)
    path = output or Layout(folder, run.stem).plots / picture_name(record, suffix)
    shared.save_output(path, track_picture(track, suffix), force=force, option="--output")
    shared.say(f"picture: {path}")
