"""``virnucpro report``: makes the reports of finished runs again, and an overview of several."""

from __future__ import annotations

from pathlib import Path

import click

import virnucpro.cli.shared as shared
from virnucpro.errors import UsageError
from virnucpro.layout import SamplesFolder


@shared.command(short_help="Write the report of a run, or of several, again.")
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=shared.FOLDER)
@shared.option(
    "-o --output",
    shared.FILE,
    "File of the overview of several runs.  [default: virnucpro_overview.html; of a command "
    "with several inputs: DIR/samples_overview.html]",
)
@shared.short_options
def report(folders: tuple[Path, ...], output: Path | None) -> None:
    """Write STEM_report.html of each finished run in each DIR, or of all samples in it.

    predict writes it at its end. A report is one page that needs no network. Of several runs, an
    overview is written too: samples by counts, with links to their reports.

    Examples:
      virnucpro report results
      virnucpro report results_of_several_inputs
      virnucpro report sample1 sample2 sample3 -o overview.html
    """
    from virnucpro.report.writing import earlier_page, write_overview, write_report
    from virnucpro.run.sample_list import finished_runs, renew_samples, runs_of_samples
    from virnucpro.store.disk import Disk
    from virnucpro.ui.step_screen import StepScreen

    disk = Disk()
    runs = [named for folder in dict.fromkeys(folders) for named in finished_runs(folder)]
    if output is not None and len(runs) == 1:
        raise UsageError("--output names the overview of several runs, and there is only one")
    of_samples = output is None and len(folders) == 1 and bool(runs_of_samples(folders[0]))
    common = SamplesFolder(folders[0]).overview if of_samples else Path("virnucpro_overview.html")
    overview = output or common
    if of_samples or len(runs) > 1:
        earlier_page(overview)  # refuses another file before any report is written
    loaded = shared.configuration()
    screen = StepScreen(loaded.display)
    with shared.shown_on(screen, loaded.warnings):
        for name, run in runs:
            screen.begin(f"report of {name}", run.summary.records)
            path = write_report(run, disk, screen.show_report, again=True)
            screen.say(f"report: {path}")
        if of_samples:
            renew_samples(folders[0], screen.say)
        elif len(runs) > 1:
            write_overview(overview, runs, disk)
        if of_samples or len(runs) > 1:
            screen.say(f"overview: {overview}")
