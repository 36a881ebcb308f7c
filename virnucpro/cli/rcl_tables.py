"""``virnucpro rcl validate`` and ``profile``: tables of serpins, checked and made a model."""

from __future__ import annotations

from pathlib import Path

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.rcl_options import max_length_option
from virnucpro.errors import EXIT_OK, InputError, UsageError
from virnucpro.formatting import counted, printable

VALIDATE_EPILOG = """\b
Examples:
  virnucpro rcl validate serpins.csv
  virnucpro rcl validate serpins_train.csv serpins_test.csv > report.txt

""" + shared.exit_codes(0, 64, 65)


@click.command(epilog=VALIDATE_EPILOG, short_help="Check tables of annotated proteins.")
@click.argument("tables", type=shared.FILE, nargs=-1, required=True, metavar="TABLE...")
@max_length_option
@shared.short_options
def validate(tables: tuple[Path, ...], max_length: int) -> int:
    """Check every row of each TABLE: coordinates, letters, and duplicates, also between tables.

    A TABLE is CSV with the columns id and Sequence, and optionally rcl_start, rcl_end and rcl_seq.
    The report goes to standard output. No file is written. The exit code is 65 if a row is wrong.
    """
    from virnucpro.rcl.proteins import check_tables

    lines, wrong = check_tables(tables, max_length)
    click.echo(printable("\n".join(lines)))
    return InputError.exit_code if wrong else EXIT_OK


PROFILE_EPILOG = """\b
Examples:
  virnucpro rcl profile serpins.csv --output my_serpins.hmm
  virnucpro rcl predict proteins.fa --model my_serpins.hmm

""" + shared.exit_codes(0, 6, 64, 65)


@click.command(epilog=PROFILE_EPILOG, short_help="Make a profile (HMM) from annotated serpins.")
@click.argument("table", type=shared.FILE, metavar="TABLE")
@shared.option("--output", shared.FILE, "File of the profile, with the suffix .hmm.", required=True)
@shared.force_option
@shared.short_options
def profile(table: Path, output: Path, force: bool) -> None:
    """Make a profile from the serpins of TABLE, for rcl predict --model.

    TABLE is CSV with the columns id, Sequence, rcl_start and rcl_end. The serpins of 300 to 700
    residues are aligned; the columns that most annotated RCLs begin and end in are those of the
    RCL. The shipped model hmm was made in this way.
    """
    from virnucpro.rcl.profile import PROFILE_SUFFIX, build_profile
    from virnucpro.rcl.proteins import read_proteins
    from virnucpro.store.disk import sha256_of

    if output.suffix != PROFILE_SUFFIX:
        raise UsageError(f"--output {output}: give it the suffix {PROFILE_SUFFIX}")
    proteins, warnings = read_proteins(table, None, 1 << 20)
    for warning in warnings:
        shared.say(warning)
    rows = [(protein.sequence, protein.start, protein.end) for protein in proteins]
    shared.say(f"aligning {counted(len(rows), 'serpin')}, which takes a minute for 1,000")
    made = build_profile(rows, {"serpins": len(rows), "table_sha256": sha256_of(table)})
    shared.save_output(output, made.to_bytes(), force=force, option="--output")
    first, last = made.columns
    shared.say(f"{output}: {made.hmm.M} columns, the RCL in columns {first} to {last}")
