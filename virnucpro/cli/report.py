"""``virnucpro report``: makes the reports of finished runs again, and an overview of several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import virnucpro.cli.shared as shared
from virnucpro.errors import UsageError
from virnucpro.layout import SamplesFolder

if TYPE_CHECKING:
    from virnucpro.results import PredictionRun

EPILOG = """\b
Examples:
  virnucpro report results
  virnucpro report results_of_several_inputs
  virnucpro report sample1 sample2 sample3 -o overview.html

""" + shared.exit_codes(0, 6, 64, 65, 130)


@click.command(epilog=EPILOG, short_help="Write the report of a run, or of several, again.")
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=shared.FOLDER)
@click.option(
    "-o",
    "--output",
    type=shared.FILE,
    help="File of the overview of several runs.  [default: virnucpro_overview.html; of a command "
    "with several inputs: DIR/samples_overview.html]",
)
@shared.short_options
def report(folders: tuple[Path, ...], output: Path | None) -> None:
    """Write STEM_report.html of each finished run in each DIR, or of all samples in it.

    predict writes it at its end. A report is one page that needs no network. Of several runs, an
    overview is written too: samples by counts, with links to their reports.
    """
    from virnucpro.report.writing import refuse_other_file, text_of, write_overview, write_report
    from virnucpro.store.disk import Disk
    from virnucpro.ui.step_screen import StepScreen

    disk = Disk()
    runs = [named for folder in dict.fromkeys(folders) for named in _named_runs(folder)]
    if output is not None and len(runs) == 1:
        raise UsageError("--output names the overview of several runs, and there is only one")
    overview = output or _default_overview(folders)
    if len(runs) > 1:
        refuse_other_file(overview, text_of(overview))
    loaded = shared.configuration()
    screen = StepScreen(loaded.display)
    with shared.shown_on(screen, loaded.warnings):
        for name, run in runs:
            screen.begin(f"report of {name}", run.summary.records)
            path = write_report(run, disk, screen.show_report, again=True)
            screen.say(f"report: {path}")
        if len(runs) > 1:
            write_overview(overview, runs, disk)
            screen.say(f"overview: {overview}")


def _named_runs(folder: Path) -> list[tuple[str, PredictionRun]]:
    """Return the finished runs of a folder, or those of all samples of several inputs, with names.

    Raises:
        UsageError: there is none.
    """
    from virnucpro.results import open_runs
    from virnucpro.run.sample_list import runs_of_samples

    return runs_of_samples(folder) or [(run.stem, run) for run in open_runs(folder)]


def _default_overview(folders: tuple[Path, ...]) -> Path:
    from virnucpro.run.sample_list import read_names

    if len(folders) == 1 and read_names(folders[0]):
        return SamplesFolder(folders[0]).overview
    return Path("virnucpro_overview.html")
