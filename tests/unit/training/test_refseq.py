"""RefSeq releases, from a server on this machine."""

from __future__ import annotations

import hashlib

import pytest

from tests.unit.models.serving import serving
from virnucpro.errors import DownloadError, InputError, UsageError
from virnucpro.models.download import DownloadRefusedError
from virnucpro.store.disk import Disk
from virnucpro.training.data.refseq import (
    Release,
    ReleaseFile,
    check_groups,
    fetch_file,
    read_release,
    save_table,
    table_of,
)
from virnucpro.training.data.table import read_genome_table

DATA = {f"viral/viral.{n}.genomic.gbff.gz": bytes([n]) * 70_000 for n in (1, 2, 10)} | {
    "archaea/archaea.1.1.genomic.fna.gz": b"fasta" * 1000,
    "archaea/archaea.1.genomic.gbff.gz": b"gb",
}


def listing() -> str:
    lines = ["MD5 checksum\tFile name"]
    lines += [
        f"{hashlib.md5(d).hexdigest()}\t{name.split('/')[1]}" for name, d in reversed(DATA.items())
    ]
    lines += ["0" * 32 + "\tviral.1.protein.faa.gz", "1" * 32 + "\tviral.../../x.1.genomic.gbff.gz"]
    return "\n".join(lines) + "\n"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def site():
    with serving() as site:
        site.files |= {f"/release/{name}": data for name, data in DATA.items()}
        site.files["/release/RELEASE_NUMBER"] = b"231\n"
        site.files["/release/release-catalog/release231.files.installed"] = listing().encode()
        yield site


@pytest.fixture
def bring(site, tmp_path):
    def _bring(
        name: str = "viral/viral.1.genomic.gbff.gz", mirrors: tuple[str, ...] = (), md5: str = ""
    ):
        group, _, base = name.partition("/")
        file = ReleaseFile(group, base, md5 or hashlib.md5(DATA.get(name, b"")).hexdigest())
        places = mirrors or (f"{site.address}/release",)
        return fetch_file(file, tmp_path, places)

    return _bring


def test_the_current_release_and_its_files_in_order(site):
    release = read_release([f"{site.address}/release"])
    assert release == Release(231, listing())
    names = [file.name for file in release.files("viral", "genbank")]
    assert names == [f"viral.{n}.genomic.gbff.gz" for n in (1, 2, 10)]
    assert [f.relative_path for f in release.files("archaea", "fasta")] == [
        "archaea/archaea.1.1.genomic.fna.gz"
    ]


def test_a_group_without_such_files(site):
    with pytest.raises(DownloadError, match="lists no fasta files of viral"):
        Release(1, listing()).files("viral", "fasta")


def test_a_second_mirror_is_asked(site):
    mirrors = [f"{site.address}/nowhere", f"{site.address}/release"]
    assert read_release(mirrors).number == 231
    with pytest.raises(DownloadError, match="404"):
        read_release(mirrors[:1])


def test_a_page_that_is_no_release(site):
    site.files["/release/RELEASE_NUMBER"] = b"<html>log in</html>"
    with pytest.raises(DownloadError, match="is not a number"):
        read_release([f"{site.address}/release"])


def test_groups():
    check_groups(["viral", "vertebrate_other"])
    with pytest.raises(UsageError, match="did you mean bacteria"):
        check_groups(["bakteria"])
    with pytest.raises(UsageError, match="there are archaea"):
        check_groups(["complete"])


def test_a_file_is_fetched_once_and_then_only_checked(site, bring, tmp_path):
    assert bring() == "fetched"
    path = tmp_path / "viral" / "viral.1.genomic.gbff.gz"
    assert path.read_bytes() == DATA["viral/viral.1.genomic.gbff.gz"]
    assert bring() == "here"
    assert len(site.asked) == 1
    path.write_bytes(b"damaged")
    assert bring() == "fetched"
    assert path.read_bytes() == DATA["viral/viral.1.genomic.gbff.gz"]


def test_a_wrong_checksum_is_refused_and_removed(bring, tmp_path):
    with pytest.raises(InputError, match="its MD5 is not that of the release's list"):
        bring(md5="0" * 32)
    assert list((tmp_path / "viral").iterdir()) == []


def test_another_mirror_has_what_the_first_has_not_or_has_wrong(site, bring):
    wrong = site.address + "/wrong"
    site.files["/wrong/viral/viral.1.genomic.gbff.gz"] = b"an older release"
    right = site.address + "/release"
    assert bring(mirrors=(site.address + "/none", wrong, right)) == "fetched"
    with pytest.raises(DownloadRefusedError, match="404"):
        bring("viral/viral.3.genomic.gbff.gz")


@pytest.mark.parametrize(
    ("form", "header", "genome"),
    [
        ("genbank", "NZ_ABCD01000007.1 Vibrio x, contig 7 [Vibrio x]", "Vibrio x"),
        ("fasta", "NZ_ABCD01000007.1 Vibrio x, contig 7", "NZ_ABCD01"),
        ("fasta", "NC_001416.1 phage lambda", "NC_001416.1"),
    ],
)
def test_the_table_is_one_for_prepare(tmp_path, form, header, genome):
    files = [
        ReleaseFile("viral", "viral.1.gz", "0" * 32),
        ReleaseFile("fungi", "fungi.1.gz", "0" * 32),
    ]
    for file in files:
        (tmp_path / file.group).mkdir()
        (tmp_path / file.relative_path).write_bytes(b"")
    text = table_of(files, form)
    assert save_table(text, tmp_path, Disk())
    assert save_table(text, tmp_path, Disk())
    rows = read_genome_table(tmp_path / "refseq.tsv", tmp_path)
    assert [(row.label, row.group) for row in rows] == [
        ("virus", "RefSeq viral"),
        ("others", "RefSeq fungi"),
    ]
    assert rows[0].genome_name(header.split()[0], header) == genome
    (tmp_path / "refseq.tsv").write_text("edited")
    assert not save_table(text, tmp_path, Disk())
    assert (tmp_path / "refseq.tsv").read_text() == "edited"
