"""Releases of RefSeq: which files a group has, and bringing them here, checked.

Layout and names as in https://ftp.ncbi.nlm.nih.gov/refseq/release/: ``RELEASE_NUMBER`` holds the
number N, ``release-catalog/releaseN.files.installed`` the MD5 and name of every file, and
``viral/viral.1.genomic.gbff.gz`` is one of the group ``viral``.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from virnucpro.errors import DownloadError, InputError, UsageError
from virnucpro.io.download import DownloadProgress, download
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

Pause = Callable[[float], None]


@dataclass(frozen=True)
class ReleaseFile:
    """A file of a release: its group, its name there, its MD5 (hex)."""

    group: str
    name: str
    md5: str

    @property
    def place(self) -> str:
        """Its path in the release and here."""
        return f"{self.group}/{self.name}"


@dataclass(frozen=True)
class Release:
    """A release: its number, and its list of files as it is published."""

    number: int
    listing: str

    def files(self, group: str, form: Format) -> tuple[ReleaseFile, ...]:
        """The genome files of ``group`` in the order of their numbers.

        Raises:
            DownloadError: the release has none.
        """
        # Names become paths: nothing but group, numbers and suffix is let through.
        name = re.compile(re.escape(group) + r"((?:\.\d+)+)\." + re.escape(_SUFFIX[form]))
        found: list[tuple[list[int], ReleaseFile]] = []
        for line in self.listing.splitlines():
            listed = _LISTED.fullmatch(line.strip())
            if listed and (match := name.fullmatch(listed[2])):
                numbers = [int(number) for number in match[1].split(".")[1:]]
                found.append((numbers, ReleaseFile(group, listed[2], listed[1])))
        if not found:
            raise DownloadError(
                f"release {self.number} lists no {form} files of {group} with an MD5: choose "
                f"another --format or group"
            )
        return tuple(file for _, file in sorted(found, key=lambda entry: entry[0]))


def check_groups(groups: Sequence[str]) -> None:
    """Refuse a group that no release has.

    Raises:
        UsageError: names it, and the nearest that there is.
    """
    for group in groups:
        if group not in GROUPS:
            near = difflib.get_close_matches(group, GROUPS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(GROUPS)}"
            raise UsageError(f"RefSeq has no release group {group!r}: {hint}")


def read_release(mirrors: Sequence[str], pause: Pause) -> Release:
    """The current release of the first mirror that answers.

    Raises:
        DownloadError: none does, or what it says is no release.
    """
    with tempfile.TemporaryDirectory() as folder:
        failures = []
        for mirror in mirrors:
            try:
                return _release_of(mirror, Path(folder), pause)
            except DownloadError as error:
                failures.append(str(error))
    raise DownloadError("\n".join(failures))


def _release_of(mirror: str, folder: Path, pause: Pause) -> Release:
    def bring(place: str) -> str:
        target = folder / "list"
        target.unlink(missing_ok=True)
        download(f"{mirror}/{place}", target, lambda _: None, lambda *_: None, pause)
        return target.read_text(encoding="utf-8", errors="replace")

    number = bring("RELEASE_NUMBER").strip()
    if not (number.isascii() and number.isdecimal()):
        raise DownloadError(f"{mirror}/RELEASE_NUMBER is no number: is this a copy of {NCBI}?")
    return Release(int(number), bring(f"release-catalog/release{number}.files.installed"))


def fetch_file(
    file: ReleaseFile,
    folder: Path,
    mirrors: Sequence[str],
    progress: DownloadProgress,
    pause: Pause,
) -> Literal["fetched", "here"]:
    """Bring a file of a release to ``folder``; one that is there and right is left alone.

    Raises:
        DownloadRefusedError: the last mirror does not have it.
        InputError: what the last mirror sent has another MD5.
        DownloadError: the last mirror cannot be reached; what has come is kept.
        OutputError: the disk is full or unwritable.
    """
    target = folder / file.group / file.name
    if target.is_file() and md5_of(target) == file.md5:
        return "here"

    def check(part: Path) -> None:
        if md5_of(part) != file.md5:
            raise InputError(
                f"{file.place}: its MD5 is not that of the release's list, so it is not used; run "
                f"the same command again, or try another --mirror"
            )

    for mirror in mirrors[:-1]:
        try:
            download(f"{mirror}/{file.place}", target, check, progress, pause)
            return "fetched"
        except (DownloadError, InputError):
            continue  # what the last one answers is what is said
    download(f"{mirrors[-1]}/{file.place}", target, check, progress, pause)
    return "fetched"


def md5_of(path: Path) -> str:
    """MD5 (hex) of a file's content: against accidents, which is what NCBI publishes it for."""
    md5 = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            md5.update(block)
    return md5.hexdigest()


def table_of(files: Sequence[ReleaseFile], form: Format) -> str:
    """A table for ``train prepare``: viruses are ``viral``, everything else is not."""
    lines = ["file\tlabel\tgroup\tsplit\tgenome"]
    for file in files:
        label = "virus" if file.group == "viral" else "others"
        lines.append(f"{file.place}\t{label}\tRefSeq {file.group}\tauto\t{_GENOME[form]}")
    return "\n".join(lines) + "\n"


def save_table(text: str, folder: Path, disk: Disk) -> bool:
    """Write the table into ``folder``; False where another one is there, which stays."""
    path = folder / TABLE
    if path.exists() and path.read_bytes() != text.encode():
        return False
    disk.save(path, text.encode())
    return True
