"""``virnucpro call``, ``report``, ``plot`` and ``evaluate``: finished runs, told in other ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.shared import FILE, FOLDER, command, option
from virnucpro.cli.summary import call_lines
from virnucpro.errors import EXIT_OK, EXIT_PARTIAL, UsageError
from virnucpro.events import StepAdvanced, StepStarted
from virnucpro.layout import SamplesFolder
from virnucpro.settings import Share

FOLDERS = click.Argument(["folders"], type=FOLDER, nargs=-1, required=True, metavar="DIR...")


@command(
    FOLDERS,
    option("--stem NAME stems", str, "Only the run of this name; repeatable.", multiple=True),
    option("--input --input2 inputs", FILE, "A moved input of a run; repeatable.", multiple=True),
    common=shared.THRESHOLDS,
)
def call(folders: tuple[Path, ...], **options: Any) -> int:
    """Write the tables of finished runs with other thresholds.

    For every finished run in DIR, it is decided again which records are classified as viral. DIR
    may have the runs of several inputs. The scores stay as they are: tables, regions and sequences
    are written again in seconds. Without options, the thresholds are the defaults of predict.

    Examples:
      virnucpro call results --min-score 0.6
      virnucpro call results --max-fdr 0.05 --min-length 3000
      virnucpro call results --max-fdr 0.1 --input /new/place/contigs.fa
    """
    settings = shared.configuration(options)
    from virnucpro.run.call import call_again

    with shared.screen(settings) as screen:
        runs, are_left_out = call_again(
            folders,
            options["stems"],
            options["inputs"],
            settings.thresholds,
            shared.command_line(),
            screen.show,
        )
    for layout, figures, changed, noun in runs:
        state = "" if changed else " (as it was)"
        thresholds = figures.thresholds.described(calibrated=figures.calibrated)
        shared.tell(
            f"{layout.sample}: {thresholds}{state}",
            *(f"  {line}" for line in call_lines(figures, layout, noun)),
            f"  One row per virus: {shared.shown_path(layout.virus_table)}",
        )
    return EXIT_PARTIAL if are_left_out else EXIT_OK


@command(
    FOLDERS,
    option(
        "-o --output",
        FILE,
        "File of the overview of several runs.  [default: virnucpro_overview.html, in DIR if that "
        "is one; of several inputs: DIR/samples_overview.html]",
    ),
    common="replace",
)
def report(folders: tuple[Path, ...], output: Path | None, *, force: bool) -> None:
    """Write the report of a run, or of several, again.

    predict writes STEM_report.html at its end; it is a page that needs no network. Of several runs
    in DIR, an overview is written too: samples by counts, with links to their reports.

    Examples:
      virnucpro report results
      virnucpro report sample1 sample2 sample3 -o overview.html
    """
    from virnucpro.layout import Layout
    from virnucpro.report.page import write_overview, write_report
    from virnucpro.results import open_run
    from virnucpro.run.sample_list import finished_runs, renew_samples, runs_of_samples
    from virnucpro.store.disk import Disk
    from virnucpro.store.lock import locked
    from virnucpro.store.work import refuse_existing

    if output is not None and not force:
        refuse_existing([output])
    runs = [named for folder in dict.fromkeys(folders) for named in finished_runs(folder)]
    place = folders[0] if len(folders) == 1 else Path()
    of_samples = output is None and len(folders) == 1 and bool(runs_of_samples(place))
    common = SamplesFolder(place).overview if of_samples else place / "virnucpro_overview.html"
    overview = (output or common) if of_samples or output or len(runs) > 1 else None
    with shared.screen(shared.configuration()) as screen:
        screen.show(StepStarted("reports", len(runs)))
        for number, (name, found) in enumerate(runs):
            with locked(Layout(found.folder, found.stem).lock):
                run = open_run(found.folder, found.stem)  # as it is now that it is locked
                screen.say(f"report: {write_report(run, Disk(), again=True)}")
            runs[number] = name, run
            screen.show(StepAdvanced(1))
        problem = renew_samples(folders[0]) if of_samples else ""
        if overview and not of_samples:
            write_overview(overview, runs, Disk())
        if overview:
            screen.say(problem or f"overview: {overview}")


@command(
    click.Argument(["folder"], type=FOLDER, metavar="DIR"),
    option("--record ID", str, "The record to draw.", required=True),
    option("--stem NAME stem", str, "The run, or the sample, where DIR holds several."),
    option("-o --output", FILE, "The picture, .png or .svg.  [default: STEM_plots/ID.png]"),
    common="replace",
)
def plot(folder: Path, record: str, output: Path | None, **options: Any) -> None:
    """Draw the scores along one record.

    The picture has the scores of all chunks of a record of a finished run in DIR, and its regions.
    DIR may have the runs of several inputs.

    Examples:
      virnucpro plot results --record contig_17
      virnucpro plot results --record contig_17 -o contig_17.svg
    """
    from virnucpro.layout import Layout, picture_name
    from virnucpro.report.tracks import track_picture
    from virnucpro.run.sample_list import finished_runs

    suffix = output.suffix.lower().removeprefix(".") if output else "png"
    if suffix not in ("png", "svg"):
        raise UsageError(f"--output {output}: the name must end in .png or .svg")
    runs, stem = finished_runs(folder), options["stem"]
    chosen = [run for name, run in runs if stem in (None, name, run.stem)]
    if len(chosen) != 1:
        names = ", ".join(name for name, _ in runs)
        raise UsageError(f"{folder} holds these runs: name one of them with --stem: {names}")
    (run,) = chosen
    picture = track_picture(run, record, suffix)
    path = output or Layout(run.folder, run.stem).plots / picture_name(record, suffix)
    shared.save_output(path, picture, force=options["force"] or output is None)
    shared.say(f"picture: {path}")


@command(
    click.Argument(["predictions"], type=FILE, metavar="PREDICTIONS"),
    option("--labels", FILE, "Table of what the records are.", required=True),
    option("-o --output-dir", FOLDER, "Folder of the results.  [default: beside the predictions]"),
    option("--level", ("frame", "chunk", "contig"), "Unit that is measured.  [default: chunk]"),
    option("--threshold", Share, "Least score of virus.  [default: the calls of predict]"),
    common="force",
)
def evaluate(predictions: Path, labels: Path, **options: Any) -> None:
    """Measure predictions on records of known origin.

    PREDICTIONS is an output directory of predict, or one of its tables. Written are metrics with
    their intervals, overall, by group and by chunk length, and plots. A group is measured against
    all rows of the other label.

    Examples:
      virnucpro evaluate results --labels labels.tsv
      virnucpro evaluate results --labels dataset/genomes.tsv --level contig -o figures

    The labels are a table with the columns record and label (virus or others), and optionally group
    and genome. The file genomes.tsv of a data set is such a table.
    """
    from virnucpro.evaluation.run import run_evaluation

    with shared.screen(shared.configuration()) as screen:
        result = run_evaluation(predictions, labels, **options, show=screen.show)
    shared.tell(result)
