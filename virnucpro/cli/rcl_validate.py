"""``virnucpro rcl validate``: checks tables of annotated proteins."""

from __future__ import annotations

from pathlib import Path

import click

import virnucpro.cli.shared as shared
from virnucpro.cli.rcl_options import max_length_option
from virnucpro.errors import EXIT_OK, InputError
from virnucpro.formatting import printable

EPILOG = """\b
Examples:
  virnucpro rcl validate serpins.csv
  virnucpro rcl validate serpins_train.csv serpins_test.csv > report.txt

""" + shared.exit_codes(0, 64, 65)


@click.command(epilog=EPILOG, short_help="Check tables of annotated proteins.")
@click.argument("tables", type=shared.FILE, nargs=-1, required=True, metavar="TABLE...")
@max_length_option
@shared.short_options
def validate(tables: tuple[Path, ...], max_length: int) -> int:
    """Check every row of each TABLE: coordinates, letters, and duplicates, also between tables.

    A TABLE is CSV with the columns id and Sequence, and optionally rcl_start, rcl_end and rcl_seq.
    The report goes to standard output. No file is written. The exit code is 65 if a row is wrong.
    """
    from virnucpro.rcl.validation import check_tables

    lines, wrong = check_tables(tables, max_length)
    click.echo(printable("\n".join(lines)))
    return InputError.exit_code if wrong else EXIT_OK
