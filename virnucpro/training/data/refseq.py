"""Releases of RefSeq: the files of each group, and their checked download.

Layout and names as in https://ftp.ncbi.nlm.nih.gov/refseq/release/: ``RELEASE_NUMBER`` holds the
number N, ``release-catalog/releaseN.files.installed`` the MD5 and name of every file, and
``viral/viral.1.genomic.gbff.gz`` is one of the group ``viral``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from virnucpro.errors import DownloadError, OutputError, UsageError

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
ATTEMPTS = 3  # at each mirror
TIMEOUT = 60  # seconds without a byte
BLOCK = 1 << 20
Progress = Callable[[int, int | None], None]
"""Takes the bytes that have arrived, and the size of the file."""


class ReleaseFile(NamedTuple):
    """A genome file of a release: its group, its name and its MD5 (hex)."""

    group: str
    name: str
    md5: str

    @property
    def relative_path(self) -> str:
        """Return its path in the release, which is also its path in the output folder."""
        return f"{self.group}/{self.name}"


class Release(NamedTuple):
    """A release: its number, and the published list of its files."""

    number: int
    listing: str

    def files(self, group: str, form: Format) -> list[ReleaseFile]:
        """Return the genome files of ``group`` in the order of their numbers.

        Raises:
            UsageError: RefSeq has no such group.
            DownloadError: the release has no such file.
        """
        if group not in GROUPS:
            raise UsageError(f"RefSeq has no group {group!r}: there are {', '.join(GROUPS)}")
        # Names become paths, so only group, numbers and suffix are allowed.
        suffix = re.escape(_SUFFIX[form])
        pattern = re.compile(re.escape(group) + r"((?:\.[0-9]{1,9}){1,9})\." + suffix)
        files = []
        for md5, name in _LISTED.findall(self.listing):
            if match := pattern.fullmatch(name):
                numbers = [int(number) for number in match[1].split(".")[1:]]
                files.append((numbers, ReleaseFile(group, name, md5)))
        if not files:
            raise DownloadError(
                f"release {self.number} lists no {form} files of {group} with an MD5: choose "
                f"another --format or group"
            )
        return [file for _, file in sorted(files)]


def check_mirror(address: str) -> str:
    """Return the address of a mirror without a last slash.

    Raises:
        UsageError: it is neither https nor of this machine.
    """
    parts = urlsplit(address)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost"):
        raise UsageError(f"--mirror {address} is not https: write https://...")
    return address.rstrip("/")


def read_release(mirrors: Sequence[str]) -> Release:
    """Return the current release of the first mirror that answers.

    Raises:
        DownloadError: no mirror answers with a release.
    """
    import requests

    def text(address: str) -> str:
        answer = requests.get(address, timeout=TIMEOUT)
        answer.raise_for_status()
        return answer.content.decode("utf-8", errors="replace")

    failures = []
    for mirror in mirrors:
        try:
            number = text(f"{mirror}/RELEASE_NUMBER").strip()
            if not re.fullmatch("[0-9]{1,9}", number):
                raise ValueError(f"{mirror}/RELEASE_NUMBER is not a number")
            listing = text(f"{mirror}/release-catalog/release{number}.files.installed")
            return Release(int(number), listing)
        except (requests.RequestException, ValueError) as error:
            failures.append(str(error))
    raise DownloadError("no release of RefSeq can be read: " + "; ".join(failures))


class _Arrived:
    """What pooch reports its progress to, as to a bar of tqdm."""

    total = 0

    def __init__(self, progress: Progress) -> None:
        self._progress, self._seen = progress, 0

    def update(self, amount: int) -> None:
        self._seen = min(self._seen + amount, self.total)
        self._progress(self._seen, self.total)

    def reset(self) -> None:
        self._seen = 0

    def close(self) -> None:
        """Nothing is left to do."""


def is_here(file: ReleaseFile, folder: Path) -> bool:
    """Return whether ``folder`` has the file with the right checksum."""
    import pooch

    path = folder / file.relative_path
    return path.is_file() and pooch.file_hash(str(path), alg="md5") == file.md5


def fetch_file(file: ReleaseFile, folder: Path, mirrors: Sequence[str], progress: Progress) -> None:
    """Download a file of a release into ``folder``, if it is not there with its checksum.

    Raises:
        DownloadError: no mirror has it with the right checksum.
        OutputError: the disk is full or unwritable.
    """
    import pooch
    import requests

    pooch.get_logger().setLevel("ERROR")
    failure = ""
    for mirror in list(mirrors) * ATTEMPTS:
        downloader = pooch.HTTPDownloader(
            progressbar=_Arrived(progress), chunk_size=BLOCK, timeout=TIMEOUT
        )
        try:
            pooch.retrieve(
                f"{mirror}/{file.relative_path}",
                f"md5:{file.md5}",
                file.name,
                folder / file.group,
                downloader=downloader,
            )
            return
        except (requests.RequestException, ValueError) as error:  # ValueError: another MD5
            failure = str(error)
        except OSError as error:
            raise OutputError(f"cannot write {file.name} to {folder}: {error.strerror}") from error
    raise DownloadError(f"{file.relative_path}: {failure}")


def table_of(files: Sequence[ReleaseFile], form: Format) -> str:
    """Return a table for ``train prepare`` that labels the group ``viral`` as virus."""
    lines = ["file\tlabel\tgroup\tsplit\tgenome"]
    for file in files:
        label = "virus" if file.group == "viral" else "others"
        lines.append(f"{file.relative_path}\t{label}\tRefSeq {file.group}\tauto\t{_GENOME[form]}")
    return "\n".join(lines) + "\n"
