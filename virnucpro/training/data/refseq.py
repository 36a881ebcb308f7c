"""Releases of RefSeq: the files of each group, with their checksums.

Layout and names as in https://ftp.ncbi.nlm.nih.gov/refseq/release/: ``RELEASE_NUMBER`` holds the
number N, ``release-catalog/releaseN.files.installed`` the MD5 and name of every file, and
``viral/viral.1.genomic.gbff.gz`` is one of the group ``viral``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from virnucpro.errors import UsageError

# The organism, which stands at the end of what GenBank headers are read as.
_GENOME = r"\[([^\[\]]*)\]$"
TIMEOUT = 60  # seconds without a byte


def read_release(mirror: str) -> tuple[int, str]:
    """Return the number of the current release, and the list of its files."""
    import requests

    def text(address: str) -> str:
        answer = requests.get(f"{mirror}/{address}", timeout=TIMEOUT)
        answer.raise_for_status()
        return answer.content.decode("utf-8", errors="replace")

    try:
        number = int(text("RELEASE_NUMBER"))
        return number, text(f"release-catalog/release{number}.files.installed")
    except (requests.RequestException, ValueError) as error:
        raise UsageError(f"no release of RefSeq can be read from {mirror}: {error}") from error


def files_of_group(listing: str, group: str) -> dict[str, str]:
    """Return path and MD5 of the genome files of ``group`` in the order of their numbers."""
    # Names become paths, so only the group, numbers and suffix are allowed.
    name = rf"{re.escape(group)}((?:\.\d{{1,9}}){{1,9}})\.genomic\.gbff\.gz"
    found = re.findall(rf"(?m)^([0-9a-f]{{32}})\s+({name})$", listing, re.ASCII)
    if not found:
        raise UsageError(f"RefSeq lists no files of {group!r}: choose a group that the help names")
    found.sort(key=lambda file: [int(number) for number in file[2].split(".")[1:]])
    return {f"{group}/{name}": md5 for md5, name, _ in found}


def table_of(paths: Iterable[str]) -> str:
    """Return a table for ``train prepare`` that labels the group ``viral`` as virus."""
    lines = ["file\tlabel\tgroup\tsplit\tgenome"]
    for path in paths:
        group = path.partition("/")[0]
        label = "virus" if group == "viral" else "others"
        lines.append(f"{path}\t{label}\tRefSeq {group}\tauto\t{_GENOME}")
    return "\n".join(lines) + "\n"
