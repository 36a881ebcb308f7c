"""``virnucpro train download`` against a server on this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.models.serving import Site, serving
from virnucpro.training.data.table import read_genome_table

FILES = {f"viral/viral.{n}.genomic.gbff.gz": bytes([n]) * 5000 for n in (1, 2, 3, 4, 10)}
FILES |= {"archaea/archaea.1.genomic.gbff.gz": b"archaea"}


LISTING = [
    "MD5 checksum\tFile name",
    *(f"{hashlib.md5(FILES[n]).hexdigest()}\t{n.split('/')[1]}" for n in reversed(FILES)),
    *(f"{0:032}\tviral.1.protein.faa.gz", f"{1:032}\tviral.../../x.1.genomic.gbff.gz\n"),
]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A mirror of RefSeq."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with serving() as site:
        site.files["/RELEASE_NUMBER"] = b"231\n"
        site.files["/release-catalog/release231.files.installed"] = "\n".join(LISTING).encode()
        site.files |= {f"/{name}": data for name, data in FILES.items()}
        yield site


@pytest.fixture
def download(call: Callable, site: Site, tmp_path: Path) -> Callable:
    command = ("train", "download", "--release-groups", "viral,archaea")
    place = ("-o", tmp_path / "refseq", "--mirror", site.address + "/")
    return lambda *more: call(*command, *place, *more)


def came(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.gz")}


def test_files_and_table(download, site, tmp_path):
    done = download()
    assert done.code == 0, done.err
    assert "RefSeq release 231" in done.err
    assert "viral: 4 of 5 files (--max-files 0 takes all)" in done.err
    folder = tmp_path / "refseq"
    assert came(folder) == {n: data for n, data in FILES.items() if ".10." not in n}
    rows = read_genome_table(folder / "refseq.tsv", folder)
    labels = [("virus", "RefSeq viral"), ("others", "RefSeq archaea")]
    assert [(row.label, row.group) for row in rows[3:]] == labels
    header = "NZ_ABCD01000007.1 Vibrio x, contig 7 [Vibrio x]"
    assert rows[0].names("NZ_ABCD01000007.1", header) == ("Vibrio x", "Vibrio x")
    for name in came(folder):
        del site.files[f"/{name}"]  # what is here is not asked for again
    again = download("--max-files", "0")  # in the order of their numbers: 10 is the last one
    assert (again.code, came(folder)) == (0, FILES)
    assert len(read_genome_table(folder / "refseq.tsv", folder)) == len(FILES)


def test_what_cannot_be_had_is_named_and_the_rest_comes(download, site, tmp_path):
    second, third = (f"viral/viral.{n}.genomic.gbff.gz" for n in (2, 3))
    del site.files[f"/{second}"]
    site.files[f"/{third}"] = b"wrong"
    folder = tmp_path / "refseq"
    mine = folder / "viral/viral.1.genomic.gbff.gz"  # a file of somebody else
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    done = download()
    assert done.code == 2
    names = (f"viral/{mine.name}", second, third)
    assert all(f"warning: {name}: " in done.err for name in names)
    assert (len(came(folder)), mine.read_text()) == (3, "mine")
    assert not (folder / "refseq.tsv").exists()
    mine.unlink()
    site.files |= {f"/{name}": FILES[name] for name in (second, third)}
    assert download("--quiet").err == ""
    assert (folder / "refseq.tsv").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--release-groups", "virus"),
        ("--release-groups", "../viral"),
        ("--mirror", "http://example.org/refseq"),  # not https
        ("--release-groups", "plant"),
        ("--mirror", "http://127.0.0.1:1/nowhere"),
    ],
)
def test_refusals(download, tmp_path, arguments):
    assert download(*arguments).code == 64
    assert not (tmp_path / "refseq").exists()
