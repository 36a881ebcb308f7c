"""What the tests of bad and odd inputs share: how a case is run and what holds for every case."""

from __future__ import annotations

import gzip
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TOY = ("--model-type", "toy", "--device", "cpu")
NOBODY = 65534
SEQUENCE = b"ATGACCGGTCTGAAC" * 8  # 120 bases, open in five frames
PLAIN = b">a first\n" + SEQUENCE[:70] + b"\n" + SEQUENCE[70:] + b"\n>b\n" + SEQUENCE[7:] + b"\n"
RESULTS = (
    "sample_contigs.tsv",
    "sample_chunks.tsv",
    "sample_virus.fna",
    "sample_merged/prediction_results.txt",
    "sample_merged/prediction_results_highestscore.csv",
)


@dataclass(frozen=True)
class Case:
    """A row of the table: its number, the input, and what must come of it.

    Attributes:
        row: number in the list of bad and odd inputs, and a few words; the id of the test.
        data: content of the input; None where there is none.
        says: what the message must have in it; ``FILE`` stands for the input.
        advice: what the message must tell the user to do.
        options: more of the command line.
        code: exit code.
        records: accepted inputs: (id, length, status) of every record.
        same: accepted inputs: the results are those of ``PLAIN``, byte for byte.
        name: file name of the input.
    """

    row: str
    data: bytes | None = PLAIN
    says: tuple[str, ...] = ()
    advice: str = ""
    options: tuple[str, ...] = ()
    code: int = 65
    records: tuple[tuple[str, int, str], ...] = ()
    same: bool = False
    name: str = "sample.fa"

    def __str__(self) -> str:
        return self.row


def bases(length: int, seed: int = 0) -> bytes:
    """Random bases, the same each time."""
    source = random.Random(seed)
    blocks = (source.randbytes(1 << 20) for _ in range(0, length, 1 << 20))
    return b"".join(blocks)[:length].translate(b"ACGT" * 64)


def packed(data: bytes) -> bytes:
    """gzip, the same bytes each time."""
    return gzip.compress(data, mtime=0)


def table(path: Path) -> list[dict[str, str]]:
    """Rows of a tab-separated result."""
    # Not csv.DictReader: that refuses fields of more than 128 KiB, which an id may have.
    header, *rows = (line.split("\t") for line in path.read_text("utf-8").split("\n")[:-1])
    return [dict(zip(header, row, strict=True)) for row in rows]


def written(out: Path) -> list[str]:
    """Every file in an output directory, but not in its state folder."""
    files = (path.relative_to(out) for path in out.rglob("*") if path.is_file())
    return sorted(str(path) for path in files if path.parts[0] != ".checkpoints")


def check_refused(done, code: int, says: tuple[str, ...], advice: str) -> None:
    """It ended with ``code`` and one message that names what is wrong and what to do."""
    assert "Traceback" not in done.err
    assert done.code == code, done.err
    for text in (*says, advice):
        assert text in done.err, done.err
    assert done.out == ""
    last = done.err.strip().split("virnucpro: ")[-1]
    assert "\x1b" not in last


def check_nothing_written(out: Path) -> None:
    """Neither results nor receipts, nor temporary files, nor anything beside the input."""
    assert written(out) == []
    assert not list(out.rglob("*.done"))
    assert not list(out.rglob("*.tmp"))


def check_accepted(done) -> None:
    """It ended well, in plain words."""
    assert "Traceback" not in done.err
    assert done.code == 0, done.err
    assert "Results in" in done.out


def result_bytes(out: Path, stem: str = "sample") -> dict[str, bytes]:
    """The result files of a run by name, the stem taken out."""
    return {name: (out / name.replace("sample", stem)).read_bytes() for name in RESULTS}


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Without the rights of root, who may read and write everything.

    Whatever is imported late must have been imported before: python may lie in root's home.
    """
    if os.getuid() != 0:
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that an ordinary user may write in; those of pytest are its owner's."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.getuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield folder


def predict(call: Callable, folder: Path, case: Case, *options: object):
    """Run ``case`` in ``folder``; its results go to ``folder / "out"``."""
    source = folder / case.name
    if case.data is not None:
        source.write_bytes(case.data)
    return call("predict", source, "-o", folder / "out", *TOY, *case.options, *options)
