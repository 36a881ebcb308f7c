"""``virnucpro train prepare``: makes a data set from labelled genomes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

import virnucpro.cli.shared as shared
from virnucpro.errors import UsageError
from virnucpro.formatting import counted

EPILOG = """\b
TABLE is tab-separated, with a header:
  file           label   group     split     genome       taxon       match
  phages.fa.gz   virus   phages    test=0.2  ^(\\S+)_frag  host=(\\w+)
  viral.1.gbff   virus   RefSeq
  bacteria.fna   others  bacteria                         ^\\S+ (\\w+)  genome
The columns file, label (virus or others) and group are required. The others are optional:
  split    auto, train, validation, test, or a fraction such as test=0.2
  genome   pattern whose first group names the genome (default: every record is a genome)
  taxon    pattern whose first group names a genus, host or family that is never divided
  match    pattern of the headers that the row is for (the first matching row counts)

\b
Examples:
  virnucpro train prepare genomes.tsv --output-dir data
  virnucpro train prepare genomes.tsv -o data -e 300,500 --genomes /data/refseq
  virnucpro train prepare genomes.tsv -o data --test 0 --validation 0.05 --seed 7
  virnucpro train prepare genomes.tsv -o records --content records -e 500,300,150

""" + shared.exit_codes(0, 3, 5, 6, 64, 65, 130)


@click.command(epilog=EPILOG, short_help="Make a labelled data set from a table of genomes.")
@click.argument("table", type=shared.FILE, metavar="TABLE")
@shared.option("-o --output-dir DATASET", shared.FOLDER, "Folder of the data set.", required=True)
@shared.option(
    "--genomes",
    shared.FOLDER,
    "Folder that relative paths in TABLE start from.  [default: the folder of TABLE]",
)
@shared.option(
    "--content",
    ("frames", "records"),
    "Cut records into chunks and write their open frames, or write whole records.",
    default="frames",
)
@shared.option(
    "-e --expected-length N lengths",
    str,
    "Bases per chunk that models are trained for; write several as 300,500, or repeat the option.",
    multiple=True,
    default=("500",),
)
@shared.option(
    "--validation",
    shared.SHARE,
    "Fraction of the genomes, or taxa, in the validation part.",
    default=0.1,
)
@shared.option(
    "--test", shared.SHARE, "Fraction of the genomes, or taxa, in the test part.", default=0.1
)
@shared.option(
    "--relatives",
    shared.SHARE,
    "Leave out genomes that share a larger fraction of their 31-mers with held-out ones.",
    default=0.05,
)
@shared.option(
    "--shard-size", shared.COUNT, "Largest number of frames per shard.  [default: as predict]"
)
@shared.option(
    "--balance/--no-balance",
    bool,
    "Take equally many frames of either label for training and validation.",
    default=True,
)
@shared.option(
    "--stride",
    shared.COUNT,
    "Begin a chunk every N bases, for fewer or more chunks than predict cuts.",
)
@shared.seed_option
@shared.force_option
@shared.global_options
def prepare(table: Path, output_dir: Path, genomes: Path | None, **options: Any) -> int:
    """Make a labelled data set from the genomes that TABLE lists.

    Each genome goes to train, validation or test as a whole, by its name, or together with all
    genomes of its taxon. Genomes that are nearly identical to held-out ones are left out. Records
    are cut into chunks as predict does, and the open reading frames of the chunks are written; from
    GenBank files only frames inside annotated proteins are kept. With --content records, whole
    records are written instead. The same command gives the same data set to the byte, and does
    nothing if the data set exists.
    """
    shared.say_at_start(f"preparing {output_dir} from {table}")
    from virnucpro.training.data.dataset import Dataset
    from virnucpro.training.data.prepare import FRAME_SETTINGS, DatasetSettings, prepare_dataset
    from virnucpro.ui.step_screen import StepScreen

    force = options.pop("force")
    lengths = _lengths(options.pop("lengths"))
    if options["content"] == "records":
        context = click.get_current_context()
        for name in FRAME_SETTINGS:
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise UsageError(
                    f"--{name.replace('_', '-')} is about frames, and --content records writes "
                    f"none: leave it out"
                )
    if genomes is not None and not genomes.is_dir():
        raise UsageError(
            f"--genomes {genomes} is not a folder: name the one that the paths start from"
        )
    settings = DatasetSettings(table, genomes or table.parent, lengths, **options)
    loaded, dataset = shared.configuration(), Dataset(output_dir)
    screen = StepScreen(loaded.display)
    with shared.shown_on(
        screen, loaded.warnings, advice="run the same command again to start over"
    ):
        prepared = prepare_dataset(
            settings, dataset, screen, command=shared.command_line(), force=force
        )
        for notice in prepared.description["notices"]:
            screen.warn(notice)
    if not loaded.display.quiet:
        click.echo(_summary(prepared.description))
        sentences = {
            "made": "The data set is in",
            "found": "The same command has already made this data set from the same genomes:",
            "remade": f"The earlier data set is now in {dataset.previous}; the new one is in",
        }
        click.echo(f"{sentences[prepared.outcome]} {output_dir}")
        place = shlex.quote(str(output_dir))
        click.echo(f"Next: {_NEXT[options['content']].format(place)}")
    return 0


def _lengths(given: Iterable[str]) -> tuple[int, ...]:
    """Return the chunk lengths in the order given, each once."""
    words = shared.separated(",".join(given))
    for word in words:
        if not (word.isascii() and word.isdecimal()) or int(word) < 3:
            raise UsageError(
                f"--expected-length {word!r} is not a number of bases of at least 3: write 300,500"
            )
    if not words:
        raise UsageError("--expected-length is empty: write 500, or 300,500")
    return tuple(dict.fromkeys(map(int, words)))


_NEXT = {
    "frames": "virnucpro train embed {}",
    "records": "virnucpro train lite {} --output-dir my_lite",
}
_REASONS = {
    "related": "left out as relatives of held-out genomes",
    "elsewhere": "left out because other rows hold their genomes out",
    "unused": "in the files, but no row is for them",
}


def _summary(facts: Mapping[str, Any]) -> str:
    """Return the parts as a table, and what is in none of them."""
    import pandas as pd

    counts = pd.DataFrame(facts["counts"])
    if facts["content"] == "frames":
        counts = counts.drop(columns="bases")
        counts = counts.rename(columns={"open": "open frames", "frames": "taken"})
    lines = [
        counts.to_string(index=False, formatters=dict.fromkeys(counts.columns[2:], "{:,}".format))
    ]
    for left in facts["left_out"]:
        if left["records"]:
            lines.append(
                f"{_REASONS[left['reason']]}: {counted(left['genomes'], 'genome')}, "
                f"{counted(left['records'], 'record')}, {counted(left['bases'], 'base')} "
                f"(genomes.tsv says which and why)"
            )
    return "\n".join(lines)
