"""``virnucpro call``, ``report``, ``plot`` and ``evaluate``: finished runs, told in other ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.summary import call_lines
from virnucpro.errors import UsageError
from virnucpro.formatting import printable
from virnucpro.layout import SamplesFolder
from virnucpro.settings import Share

FORMATS = ("png", "svg")  # of pictures


@shared.command(short_help="Write the tables of finished runs with other cuts.")
@click.argument("folders", nargs=-1, required=True, type=shared.FOLDER, metavar="DIR...")
@shared.cut_options
@shared.option("--stem NAME stems", str, "Only the run of this name; repeatable.", multiple=True)
@shared.option(
    "--input --input2 inputs",
    shared.FILE,
    "A file that a run has read, where it was moved; repeatable.",
    multiple=True,
)
@shared.short_options
def call(folders: tuple[Path, ...], **options: Any) -> None:
    """Decide again which records are called virus, in every finished run in DIR.

    DIR may be the output directory of several inputs: all samples with results are called.
    The scores stay as they are and nothing is computed: tables, regions and sequences are
    written again in seconds. Without options, the cuts are those of predict without options.

    Examples:
      virnucpro call results --min-score 0.6
      virnucpro call results --max-fdr 0.05 --min-length 3000
      virnucpro call results other_results --min-score 0.5
      virnucpro call results --stem sample1 --min-score 0
      virnucpro call results                       (back to the default)
      virnucpro call results --max-fdr 0.1 --input /new/place/contigs.fa
    """
    settings = shared.configuration(options)
    shared.say_at_start("reading the runs")
    from virnucpro.run.call import call_again
    from virnucpro.ui.step_screen import StepScreen

    screen = StepScreen(settings.display)
    stems, inputs, command = options["stems"], options["inputs"], shared.command_line()
    with shared.shown_on(screen, settings.warnings):
        runs = call_again(folders, stems, inputs, settings.cuts, command, screen, screen.show_stage)
    for run in runs:
        cuts = run.figures.cuts
        rate = f", fdr at most {cuts.max_fdr:g}" if cuts.max_fdr < 1 else ""
        length = f", at least {cuts.min_length:,} bases" if cuts.min_length > 1 else ""
        state = "" if run.changed else " (as it was)"
        lines = [
            f"{run.layout.stem}: virus score above {cuts.min_score:g}{rate}{length}{state}",
            *(f"  {line}" for line in call_lines(run.figures, run.layout.root, run.noun)),
            f"  {shared.shown_path(run.layout.virus_table)}",
        ]
        shared.tell(settings, *lines)


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
        screen.begin("reports", len(runs))
        for _, run in runs:
            screen.say(f"report: {write_report(run, disk, again=True)}")
            screen.advance(1)
        if of_samples:
            if problem := renew_samples(folders[0]):
                screen.say(problem)
        elif len(runs) > 1:
            write_overview(overview, runs, disk)
        if of_samples or len(runs) > 1:
            screen.say(f"overview: {overview}")


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


@shared.command(
    short_help="Measure predictions on records of known origin; calibrate a classifier.",
)
@click.argument("predictions", type=shared.FILE, metavar="PREDICTIONS")
@shared.option("--labels", shared.FILE, "Table of what the records are.", required=True)
@shared.option(
    "-o --output-dir",
    shared.FOLDER,
    "Folder of the results.  [default: STEM_LEVEL_evaluation beside the predictions]",
)
@shared.option(
    "--level",
    ("frame", "chunk", "contig"),
    "Unit that is measured.  [default: chunk, or the unit of the table]",
)
@shared.option(
    "--threshold",
    Share,
    "Score from which a unit is called virus, 0 to 1.  [default: as predict called it, which "
    "is 0.5 for frames and chunks]",
)
@shared.option(
    "--calibrate CLASSIFIER",
    shared.FILE,
    "Calibrate the classifier that made these predictions: fit its temperature.",
)
@shared.option(
    "--output", shared.FILE, "File of the calibrated classifier, with the suffix .safetensors."
)
@shared.force_option
@shared.global_options
def evaluate(predictions: Path, labels: Path, **options: Any) -> None:
    """Measure PREDICTIONS: an output directory of predict, or one of its tables.

    Writes metrics with their intervals, overall, by group and by chunk length, and plots. A group
    is measured against all rows of the other label.

    Examples:
      virnucpro evaluate results --labels labels.tsv
      virnucpro evaluate results --labels dataset/genomes.tsv --level contig -o figures
      virnucpro evaluate results/test_merged/prediction_results.txt --labels labels.tsv
      virnucpro evaluate validation --labels labels.tsv --calibrate my.safetensors
          --output calibrated.safetensors

    The labels are a table with the columns record and label (virus or others), and optionally group
    and genome. The file genomes.tsv of a data set is such a table.
    """
    output = options.pop("output")
    if (options["calibrate"] is None) != (output is None):
        raise UsageError("--calibrate and --output belong together: give both or neither")
    if output is not None and output.suffix != ".safetensors":
        raise UsageError(f"--output {output}: give it the suffix .safetensors")
    shared.say_at_start(f"evaluating {predictions}")
    from virnucpro.training.packages import require_packages

    require_packages(("sklearn", "pandas"), "evaluate")
    from virnucpro.evaluation.run import run_evaluation
    from virnucpro.events import Notice
    from virnucpro.ui.step_screen import StepScreen

    screen = StepScreen(shared.configuration().display)
    with shared.shown_on(screen):
        result, calibrated = run_evaluation(
            predictions,
            labels,
            **options,
            notify=lambda text: screen.notice(Notice("info", text)),
        )
        if output is not None:
            shared.save_output(output, calibrated, force=options["force"], option="--output")
        for line in result.splitlines():
            screen.log.line(line)
    if not shared.quiet():
        click.echo(printable(result))
