"""``virnucpro rcl profile``: makes the profile of serpins that is the model ``hmm``."""

from __future__ import annotations

from pathlib import Path

import click

import virnucpro.cli.shared as shared
from virnucpro.errors import UsageError
from virnucpro.formatting import counted

EPILOG = """\b
Examples:
  virnucpro rcl profile serpins.csv --output my_serpins.hmm
  virnucpro rcl predict proteins.fa --model my_serpins.hmm

""" + shared.exit_codes(0, 6, 64, 65)


@click.command(epilog=EPILOG, short_help="Make a profile (HMM) from annotated serpins.")
@click.argument("table", type=shared.FILE, metavar="TABLE")
@click.option(
    "--output", type=shared.FILE, required=True, help="File of the profile, with the suffix .hmm."
)
@shared.force_option
@shared.short_options
def profile(table: Path, output: Path, force: bool) -> None:
    """Make a profile from the serpins of TABLE, for rcl predict --model.

    TABLE is CSV with the columns id, Sequence, rcl_start and rcl_end. The serpins of 300 to 700
    residues are aligned; the columns that most annotated RCLs begin and end in are those of the
    RCL. The shipped model hmm was made in this way. The package pyhmmer is needed.
    """
    from virnucpro.layout import checkpoint_folder, existing_paths
    from virnucpro.rcl.profile import PROFILE_SUFFIX, build_profile, import_pyhmmer
    from virnucpro.rcl.proteins import read_protein_table
    from virnucpro.store.disk import Disk, is_own_file, sha256_of
    from virnucpro.store.work import ExistingWork, WorkIdentity, check_work

    if output.suffix != PROFILE_SUFFIX:
        raise UsageError(f"--output {output}: give it the suffix {PROFILE_SUFFIX}")
    import_pyhmmer()
    previous = checkpoint_folder(output.parent) / f"{output.name}.previous"
    disk = Disk()
    foreign = existing_paths(output)
    existing = ExistingWork(output.parent, previous, foreign_files=foreign, option="--output")
    serpins = read_protein_table(table, with_rcl=True, max_length=1 << 20)
    if warning := serpins.warning():
        shared.say(warning)
    rows = [(protein.sequence, protein.start, protein.end) for protein in serpins.proteins]
    shared.say(f"aligning {counted(len(rows), 'serpin')}, which takes a minute for 1,000")
    made = build_profile(rows, {"serpins": len(rows), "table_sha256": sha256_of(table)})
    content = made.to_bytes()
    if not (is_own_file(output) and output.read_bytes() == content):
        admission = check_work(WorkIdentity("the profile", {}), existing, disk, force=force)
        if admission.notice:
            shared.say(admission.notice)
        disk.save(output, content)
    first, last = made.columns
    shared.say(f"{output}: {made.hmm.M} columns, the RCL in columns {first} to {last}")
