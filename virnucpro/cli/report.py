"""``virnucpro report``: makes the reports of finished runs again, and an overview of several."""

from __future__ import annotations

from pathlib import Path

import click

import virnucpro.cli.shared as shared
from virnucpro.errors import UsageError

EPILOG = """\b
Examples:
  virnucpro report results
  virnucpro report sample1 sample2 sample3 -o overview.html

""" + shared.exit_codes(0, 6, 64, 65)


@click.command(epilog=EPILOG, short_help="Write the report of a run, or of several, again.")
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=shared.FOLDER)
@click.option(
    "-o",
    "--output",
    type=shared.FILE,
    help="File of the overview of several runs.  [default: virnucpro_overview.html]",
)
@shared.short_options
def report(folders: tuple[Path, ...], output: Path | None) -> None:
    """Write STEM_report.html of each finished run in each DIR.

    predict writes it at its end. A report is one page that needs no network. Of several runs, an
    overview is written too: samples by counts, with links to their reports.
    """
    from virnucpro.report.overview import OverviewRow, overview_page
    from virnucpro.report.writing import refuse_other_file, text_of, write_report
    from virnucpro.results import open_runs
    from virnucpro.store.disk import Disk

    disk = Disk()
    runs = [run for folder in dict.fromkeys(folders) for run in open_runs(folder)]
    if output is not None and len(runs) == 1:
        raise UsageError("--output names the overview of several runs, and there is only one")
    overview = output or Path("virnucpro_overview.html")
    if len(runs) > 1:
        refuse_other_file(overview, text_of(overview))
    samples = []
    for run in runs:
        samples.append(OverviewRow(run, write_report(run, disk, again=True), run.stem))
        shared.say(f"report: {samples[-1].report}")
    if len(runs) > 1:
        disk.save(overview, overview_page(samples, overview.absolute().parent).encode())
        shared.say(f"overview: {overview}")
