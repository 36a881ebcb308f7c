"""``virnucpro train download`` against a server on this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.models.serving import Site, serving

FILES = {f"viral/viral.{n}.genomic.gbff.gz": bytes([n]) * 5000 for n in range(1, 7)}
FILES |= {"archaea/archaea.1.genomic.gbff.gz": b"archaea"}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
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
def site() -> Iterator[Site]:
    lines = [
        f"{hashlib.md5(data).hexdigest()}\t{name.split('/')[1]}\n" for name, data in FILES.items()
    ]
    with serving() as site:
        site.files = {f"/{name}": data for name, data in FILES.items()}
        site.files["/RELEASE_NUMBER"] = b"231"
        site.files["/release-catalog/release231.files.installed"] = "".join(lines).encode()
        yield site


@pytest.fixture
def download(call: Callable, site: Site, tmp_path: Path) -> Callable:
    def _download(*more: object):
        return call(
            "train",
            "download",
            "--release-groups",
            "viral,archaea",
            "-o",
            tmp_path / "refseq",
            "--mirror",
            site.address + "/",
            *more,
        )

    return _download


def test_files_and_table(download: Callable, site: Site, tmp_path: Path) -> None:
    done = download()
    assert done.code == 0, done.err
    assert "RefSeq release 231" in done.err
    assert "viral: 4 of 6 files (--max-files 0 takes all)" in done.err
    assert "archaea: 1 of 1 files\n" in done.err
    folder = tmp_path / "refseq"
    came = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.gz")}
    assert came == {
        name: data
        for name, data in FILES.items()
        if name[6:] not in ("viral.5.genomic.gbff.gz", "viral.6.genomic.gbff.gz")
    }
    table = (folder / "refseq.tsv").read_text().splitlines()
    assert len(table) == 6
    assert table[5].startswith("archaea/archaea.1.genomic.gbff.gz\tothers\tRefSeq archaea\tauto\t")
    asked = len(site.asked)
    again = download("--max-files", "0")
    assert again.err.count("already here, and its checksum is right") == 5
    assert len(site.asked) == asked + 4  # number, list, and the two that were missing
    assert "refseq.tsv is not what this command would write" in again.err


@pytest.mark.parametrize("name", ["viral/viral.1.genomic.gbff.gz", "release231.files.installed"])
def test_files_of_somebody_else_are_refused(download: Callable, tmp_path: Path, name: str) -> None:
    path = tmp_path / "refseq" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    done = download()
    assert done.code == 64
    assert f"not its own: {name}; move them away" in done.err
    assert path.read_text() == "mine"


def test_a_dry_run_writes_nothing(download: Callable, site: Site, tmp_path: Path) -> None:
    done = download("--dry-run", "--max-files", "1")
    assert done.code == 0
    assert done.out.splitlines() == [
        f"{site.address}/viral/viral.1.genomic.gbff.gz",
        f"{site.address}/archaea/archaea.1.genomic.gbff.gz",
    ]
    assert not (tmp_path / "refseq").exists()


def test_what_cannot_be_had_is_named_and_the_rest_comes(
    download: Callable, site: Site, tmp_path: Path
) -> None:
    del site.files["/viral/viral.2.genomic.gbff.gz"]
    site.files["/viral/viral.3.genomic.gbff.gz"] = b"wrong"
    done = download()
    assert done.code == 2
    assert "2 of 5 files could not be fetched" in done.err
    assert (
        f"\n  cannot fetch {site.address}/viral/viral.2.genomic.gbff.gz: the server answers 404"
        in done.err
    )
    assert (
        "\n  viral/viral.3.genomic.gbff.gz: its MD5 is not that of the release's list" in done.err
    )
    assert sorted(p.name for p in (tmp_path / "refseq").rglob("*.gz")) == [
        "archaea.1.genomic.gbff.gz",
        "viral.1.genomic.gbff.gz",
        "viral.4.genomic.gbff.gz",
    ]
    assert not (tmp_path / "refseq" / "refseq.tsv").exists()
    site.files |= {f"/{name}": data for name, data in FILES.items()}
    assert download("--quiet").err == ""
    assert (tmp_path / "refseq" / "refseq.tsv").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--release-groups", "virus"], "did you mean viral"),
        (["--release-groups", ","], "is empty"),
        (["--mirror", "http://example.org/refseq"], "is not https"),
        (["--format", "fasta"], "lists no fasta files of viral"),
        (["--max-files", "-1"], "--max-files"),
    ],
)
def test_refusals(
    call: Callable, site: Site, tmp_path: Path, arguments: list[str], said: str
) -> None:
    options = ["-o", tmp_path / "refseq"]
    if "--mirror" not in arguments:
        options += ["--mirror", site.address]
    done = call("train", "download", *options, *arguments)
    assert done.code == 64
    assert said in done.err
    assert not (tmp_path / "refseq").exists()
