"""``virnucpro train download``: fetches genomes of the current RefSeq release."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import virnucpro.cli.shared as shared
from virnucpro.errors import EXIT_OK, EXIT_PARTIAL, DownloadError, UsageError

if TYPE_CHECKING:
    from virnucpro.store.disk import Disk
    from virnucpro.training.data.refseq import Format, Release, ReleaseFile

EPILOG = """\b
Examples:
  virnucpro train download --release-groups viral,archaea --max-files 1 --dry-run
  virnucpro train download --release-groups viral,bacteria,fungi -o refseq
  virnucpro train prepare refseq/refseq.tsv --output-dir data

Groups: archaea, bacteria, fungi, invertebrate, mitochondrion, other, plant, plasmid, plastid,
protozoa, vertebrate_mammalian, vertebrate_other, viral.

""" + shared.exit_codes(0, 2, 5, 6, 64, 130)


@click.command(epilog=EPILOG, short_help="Fetch genomes of the current RefSeq release.")
@click.option(
    "--release-groups",
    default="viral,archaea,bacteria,fungi",
    metavar="LIST",
    help="Groups of the release, separated by commas.",
)
@click.option(
    "-o", "--output-dir", type=shared.FOLDER, default=Path("refseq"), help="Folder of the files."
)
@click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    metavar="URL",
    help="Copy of https://ftp.ncbi.nlm.nih.gov/refseq/release to fetch from instead; if the option "
    "is repeated, the copies are tried in turn.",
)
@click.option(
    "--max-files",
    type=shared.COUNT_OR_ZERO,
    default=4,
    help="Largest number of files per group; 0 takes all (hundreds of GB of bacteria).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["genbank", "fasta"]),
    default="genbank",
    help="Format of the files; train prepare uses the proteins that genbank names.",
)
@click.option("--dry-run", is_flag=True, help="List what would be fetched, and fetch nothing.")
@shared.global_options
def download(
    release_groups: str, output_dir: Path, mirrors: tuple[str, ...], **options: Any
) -> int:
    """Fetch genomes of the current RefSeq release, and write a table for train prepare.

    Each file is compared with its checksum in the list of the release. The same command continues
    a download that was interrupted with the first file that is not complete.
    """
    from virnucpro.training.data.refseq import NCBI, check_mirror, read_release
    from virnucpro.training.packages import require_packages

    require_packages(["pooch"], "train download")
    groups = shared.separated(release_groups)
    if not groups:
        raise UsageError("--release-groups is empty: write viral,bacteria")
    places = [check_mirror(mirror) for mirror in mirrors] or [NCBI]
    release = read_release(places)
    shared.say(f"RefSeq release {release.number}")
    chosen: list[ReleaseFile] = []
    for group in groups:
        files = release.files(group, options["form"])
        taken = files[: options["max_files"] or None]
        hint = "" if len(taken) == len(files) else " (--max-files 0 takes all)"
        shared.say(f"{group}: {len(taken):,} of {len(files):,} files{hint}")
        chosen += taken
    if options["dry_run"]:
        for file in chosen:
            click.echo(f"{places[0]}/{file.relative_path}")
        return EXIT_OK
    return _fetch_all(release, chosen, output_dir, places, options["form"])


def _fetch_all(
    release: Release,
    files: Sequence[ReleaseFile],
    folder: Path,
    mirrors: Sequence[str],
    form: Format,
) -> int:
    from virnucpro.layout import checkpoint_folder, lock_file
    from virnucpro.store.disk import Disk
    from virnucpro.store.lock import locked
    from virnucpro.training.data.refseq import TABLE, fetch_file, is_here, table_of
    from virnucpro.ui.step_screen import StepScreen

    disk = Disk()
    lock = lock_file(folder, TABLE)
    disk.make_folder(lock.parent)
    failures = []
    loaded = shared.configuration()
    screen = StepScreen(loaded.display)
    advice = "run the same command again to continue: complete files are kept"
    begun_file = checkpoint_folder(folder) / f"{TABLE}.begun.json"
    table, text = folder / TABLE, table_of(files, form)
    with (
        locked(lock, "this download", state=[begun_file]),
        shared.shown_on(screen, loaded.warnings, advice=advice),
    ):
        _refuse_other_files(release, files, folder, begun_file, disk)
        for number, file in enumerate(files, 1):
            title = f"{number}/{len(files)} {file.name}"
            if is_here(file, folder):
                screen.say(f"{title}: already here, and its checksum is right")
                continue
            try:
                fetch_file(file, folder, mirrors, screen.transfer(title))
                screen.say(f"{title}: fetched, and its checksum is right")
            except DownloadError as error:  # the other files can come
                failures.append(str(error))
                screen.say(f"{title}: failed")
            finally:
                screen.end()
        disk.save(_listing_file(release, folder), release.listing.encode())
        if failures:
            click.echo(
                f"virnucpro: {len(failures):,} of {len(files):,} files could not be fetched; run "
                f"the same command again, or try another --mirror; no table is written:\n  "
                + "\n  ".join(failures),
                err=True,
            )
            return EXIT_PARTIAL
        if table.exists() and table.read_bytes() != text.encode():
            screen.warn(
                f"{table} is not what this command would write and was left as it is; remove it "
                f"to get a new one"
            )
        else:
            disk.save(table, text.encode())
    shared.say(f"{len(files):,} files are here; next: virnucpro train prepare {table} -o DATASET")
    return EXIT_OK


def _listing_file(release: Release, folder: Path) -> Path:
    return folder / f"release{release.number}.files.installed"


def _refuse_other_files(
    release: Release, files: Sequence[ReleaseFile], folder: Path, begun_file: Path, disk: Disk
) -> None:
    """Refuse to replace files that an earlier start of this command did not make.

    Raises:
        UsageError: there are such files (exit 64).
    """
    from virnucpro.store.work import (
        ExistingWork,
        WorkIdentity,
        foreign_files_refusal,
        read_identity,
        save_identity,
    )
    from virnucpro.training.data.refseq import is_here

    if read_identity(begun_file):
        return
    targets = [(folder / file.relative_path, file) for file in files]
    foreign = [path for path, file in targets if path.exists() and not is_here(file, folder)]
    listing = _listing_file(release, folder)
    if listing.exists() and listing.read_bytes() != release.listing.encode():
        foreign.append(listing)
    existing = ExistingWork(folder, begun_file.parent, foreign_files=foreign)
    if refusal := foreign_files_refusal(existing, force=False):
        raise refusal
    identity = WorkIdentity("a download of RefSeq files", {"release": release.number})
    save_identity(begun_file, identity, disk)
