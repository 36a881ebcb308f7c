"""``virnucpro train download``: fetches genomes of the current RefSeq release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import virnucpro.cli.shared as shared
from virnucpro.errors import EXIT_OK, EXIT_PARTIAL, OutputError, UsageError

if TYPE_CHECKING:
    from virnucpro.training.data.refseq import Format

EPILOG = """\b
Examples:
  virnucpro train download --release-groups viral,archaea --max-files 1 --dry-run
  virnucpro train download --release-groups viral,bacteria,fungi -o refseq
  virnucpro train prepare refseq/refseq.tsv --output-dir data

Groups: archaea, bacteria, fungi, invertebrate, mitochondrion, other, plant, plasmid, plastid,
protozoa, vertebrate_mammalian, vertebrate_other, viral.

""" + shared.exit_codes(0, 2, 5, 6, 64, 130)


@click.command(epilog=EPILOG, short_help="Fetch genomes of the current RefSeq release.")
@shared.option(
    "--release-groups LIST",
    str,
    "Groups of the release, separated by commas.",
    default="viral,archaea,bacteria,fungi",
)
@shared.option("-o --output-dir", shared.FOLDER, "Folder of the files.", default=Path("refseq"))
@shared.option(
    "--mirror URL",
    str,
    "Copy of the release to fetch from.",
    default="https://ftp.ncbi.nlm.nih.gov/refseq/release",
)
@shared.option(
    "--max-files",
    shared.COUNT_OR_ZERO,
    "Largest number of files per group; 0 takes all (hundreds of GB of bacteria).",
    default=4,
)
@shared.option(
    "--format form",
    ("genbank", "fasta"),
    "Format of the files; train prepare uses the proteins that genbank names.",
    default="genbank",
)
@shared.option("--dry-run", bool, "List what would be fetched, and fetch nothing.")
@shared.global_options
def download(
    release_groups: str, output_dir: Path, mirror: str, max_files: int, form: Format, dry_run: bool
) -> int:
    """Fetch genomes of the current RefSeq release, and write a table for train prepare.

    Each file is compared with its checksum in the list of the release. The same command continues
    a download that was interrupted with the first file that is not complete.
    """
    from virnucpro.training.data.refseq import files_of_group, read_release
    from virnucpro.training.packages import require_packages

    require_packages(["pooch"], "train download")
    mirror = mirror.rstrip("/")
    if not mirror.startswith(("https://", "http://127.0.0.1:", "http://localhost:")):
        raise UsageError(f"--mirror {mirror} is not https: write https://...")
    number, listing = read_release(mirror)
    shared.say(f"RefSeq release {number}")
    files: dict[str, str] = {}
    for group in shared.separated(release_groups):
        of_group = files_of_group(listing, group, form)
        chosen = list(of_group)[: max_files or None]
        hint = "" if len(chosen) == len(of_group) else " (--max-files 0 takes all)"
        shared.say(f"{group}: {len(chosen):,} of {len(of_group):,} files{hint}")
        files |= {path: of_group[path] for path in chosen}
    if dry_run:
        for path in files:
            click.echo(f"{mirror}/{path}")
        return EXIT_OK
    return _fetch(files, output_dir, mirror, form)


def _fetch(files: dict[str, str], folder: Path, mirror: str, form: Format) -> int:
    import pooch
    import requests

    from virnucpro.layout import lock_file
    from virnucpro.store.disk import Disk
    from virnucpro.store.lock import locked
    from virnucpro.training.data.refseq import TIMEOUT, table_of
    from virnucpro.ui.step_screen import StepScreen

    disk, loaded, failures = Disk(), shared.configuration(), []
    screen = StepScreen(loaded.display)
    advice = "run the same command again to continue: complete files are kept"
    table, text = folder / "refseq.tsv", table_of(files, form).encode()
    pooch.get_logger().setLevel("ERROR")
    registry = {path: f"md5:{digest}" for path, digest in files.items()}
    # A file has its name when it is complete: one that differs is not ours, or of another release.
    release = pooch.create(
        folder, f"{mirror}/", registry=registry, retry_if_failed=1, allow_updates=False
    )
    with (
        locked(lock_file(folder, table.name), "this download"),
        shared.shown_on(screen, loaded.warnings, advice=advice),
    ):
        screen.begin("downloading", len(files))
        for path in files:
            try:
                release.fetch(path, downloader=pooch.HTTPDownloader(timeout=TIMEOUT))
            except (requests.RequestException, ValueError) as error:  # ValueError: other content
                failures.append(f"{path}: {error}")
            except OSError as error:
                raise OutputError(f"cannot write {folder / path}: {error.strerror}") from error
            screen.advance(1)
        if failures:
            click.echo(
                f"virnucpro: {len(failures):,} of {len(files):,} files could not be fetched; run "
                f"the same command again, or try another --mirror; no table is written:\n  "
                + "\n  ".join(failures),
                err=True,
            )
            return EXIT_PARTIAL
        if table.exists() and table.read_bytes() != text:
            screen.warn(
                f"{table} is not what this command would write and was left as it is; remove it "
                f"to get a new one"
            )
        else:
            disk.save(table, text)
    shared.say(f"{len(files):,} files are here; next: virnucpro train prepare {table} -o DATASET")
    return EXIT_OK
