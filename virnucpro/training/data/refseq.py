"""Releases of RefSeq: the files of each group, and their checked download.

Layout and names as in https://ftp.ncbi.nlm.nih.gov/refseq/release/: ``RELEASE_NUMBER`` holds the
number N, ``release-catalog/releaseN.files.installed`` the MD5 and name of every file, and
``viral/viral.1.genomic.gbff.gz`` is one of the group ``viral``.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from virnucpro.errors import DownloadError, InputError, UsageError
from virnucpro.models.download import download
from virnucpro.store.disk import Disk

NCBI = "https://ftp.ncbi.nlm.nih.gov/refseq/release"
# The folders of a release; "complete" holds all of the others once more and is left out.
GROUPS = (
    "archaea",
    "bacteria",
    "fungi",
    "invertebrate",
    "mitochondrion",
    "other",
    "plant",
    "plasmid",
    "plastid",
    "protozoa",
    "vertebrate_mammalian",
    "vertebrate_other",
    "viral",
)
Format = Literal["genbank", "fasta"]
_SUFFIX: dict[Format, str] = {"genbank": "genomic.gbff.gz", "fasta": "genomic.fna.gz"}
# The organism, which stands at the end of what GenBank headers are read as; of a FASTA header the
# accession, of which contigs of one assembly (NZ_ABCD01000007.1) share the first part.
_GENOME: dict[Format, str] = {
    "genbank": r"\[([^\[\]]*)\]$",
    "fasta": r"^(N[TWZ]_[A-Z]{4,6}\d{2}|\S+)",
}
_LISTED = re.compile(r"([0-9a-f]{32})\s+(\S+)")
TABLE = "refseq.tsv"


@dataclass(frozen=True)
class ReleaseFile:
    """A genome file of a release: its group, its name and its MD5 (hex)."""

    group: str
    name: str
    md5: str

    @property
    def relative_path(self) -> str:
        """Return its path in the release, which is also its path in the output folder."""
        return f"{self.group}/{self.name}"


@dataclass(frozen=True)
class Release:
    """A release: its number, and the published list of its files."""

    number: int
    listing: str

    def files(self, group: str, form: Format) -> tuple[ReleaseFile, ...]:
        """Return the genome files of ``group`` in the order of their numbers.

        Raises:
            DownloadError: the release has no such file.
        """
        # Names become paths, so only group, numbers and suffix are allowed.
        suffix = re.escape(_SUFFIX[form])
        pattern = re.compile(re.escape(group) + r"((?:\.[0-9]{1,9}){1,9})\." + suffix)
        files: list[tuple[list[int], ReleaseFile]] = []
        for line in self.listing.splitlines():
            listed = _LISTED.fullmatch(line.strip())
            if listed and (match := pattern.fullmatch(listed[2])):
                numbers = [int(number) for number in match[1].split(".")[1:]]
                files.append((numbers, ReleaseFile(group, listed[2], listed[1])))
        if not files:
            raise DownloadError(
                f"release {self.number} lists no {form} files of {group} with an MD5: choose "
                f"another --format or group"
            )
        return tuple(file for _, file in sorted(files, key=lambda entry: entry[0]))


def check_groups(groups: Sequence[str]) -> None:
    """Check that RefSeq has all ``groups``.

    Raises:
        UsageError: a group does not exist; the message suggests a similar one.
    """
    for group in groups:
        if group not in GROUPS:
            near = difflib.get_close_matches(group, GROUPS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(GROUPS)}"
            raise UsageError(f"RefSeq has no release group {group!r}: {hint}")


def read_release(mirrors: Sequence[str]) -> Release:
    """Return the current release of the first mirror that answers.

    Raises:
        DownloadError: no mirror answers with a release.
    """
    with tempfile.TemporaryDirectory() as folder:
        failures = []
        for mirror in mirrors:
            try:
                return _release_of(mirror, Path(folder))
            except DownloadError as error:
                failures.append(str(error))
    raise DownloadError("\n".join(failures))


def _release_of(mirror: str, folder: Path) -> Release:
    def fetch_text(relative_path: str) -> str:
        target = folder / "list"
        target.unlink(missing_ok=True)
        download(f"{mirror}/{relative_path}", target, lambda _: None)
        return target.read_text(encoding="utf-8", errors="replace")

    number = fetch_text("RELEASE_NUMBER").strip()
    if not re.fullmatch("[0-9]{1,9}", number):
        raise DownloadError(f"{mirror}/RELEASE_NUMBER is not a number: is this a copy of {NCBI}?")
    return Release(int(number), fetch_text(f"release-catalog/release{number}.files.installed"))


def fetch_file(
    file: ReleaseFile,
    folder: Path,
    mirrors: Sequence[str],
) -> Literal["fetched", "here"]:
    """Download a file of a release into ``folder``. A file with the right MD5 is kept as it is.

    Raises:
        DownloadRefusedError: the last mirror does not have it.
        InputError: what the last mirror sent has another MD5.
        DownloadError: the last mirror cannot be reached; what was received is kept.
        OutputError: the disk is full or unwritable.
    """
    target = folder / file.group / file.name
    if target.is_file() and md5_of(target) == file.md5:
        return "here"

    def check(part: Path) -> None:
        if md5_of(part) != file.md5:
            raise InputError(
                f"{file.relative_path}: its MD5 is not that of the release's list, so it is not "
                f"used; run the same command again, or try another --mirror"
            )

    for mirror in mirrors:
        try:
            download(f"{mirror}/{file.relative_path}", target, check)
            break
        except (DownloadError, InputError):
            if mirror == mirrors[-1]:
                raise
    return "fetched"


def md5_of(path: Path) -> str:
    """Return the MD5 (hex) of a file, which NCBI publishes against damage in transfer."""
    md5 = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            md5.update(block)
    return md5.hexdigest()


def table_of(files: Sequence[ReleaseFile], form: Format) -> str:
    """Return a table for ``train prepare`` that labels the group ``viral`` as virus."""
    lines = ["file\tlabel\tgroup\tsplit\tgenome"]
    for file in files:
        label = "virus" if file.group == "viral" else "others"
        lines.append(f"{file.relative_path}\t{label}\tRefSeq {file.group}\tauto\t{_GENOME[form]}")
    return "\n".join(lines) + "\n"


def save_table(text: str, folder: Path, disk: Disk) -> bool:
    """Write the table into ``folder``, and return True.

    A different table that exists already is kept; then the result is False.
    """
    path = folder / TABLE
    if path.exists() and path.read_bytes() != text.encode():
        return False
    disk.save(path, text.encode())
    return True
