"""``virnucpro call``: writes the tables of finished runs again, with other cuts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.summary import call_lines


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
      virnucpro call results --conservative
      virnucpro call results --max-fdr 0.05 --min-length 3000
      virnucpro call results other_results --min-score 0.5
      virnucpro call results --stem sample1 --relaxed
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
        runs = call_again(
            folders, stems, inputs, settings.cuts, command, screen, screen.show_report
        )
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
