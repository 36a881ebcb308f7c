"""What the tests of bad and odd inputs share."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from virnucpro.configuration import Configuration
from virnucpro.encoders.toy import ToyEncoder
from virnucpro.events import Event, Notice, StageStarted
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest
from virnucpro.store.disk import Disk
from virnucpro.ui.terminal import Screen

CODONS = ("GCT", "ACC", "GGA", "TTC", "CAT", "AAG", "CTG", "GAT")
TOY = ("--model-type", "toy", "--device", "cpu")
SEQUENCE = b"ATGACCGGTCTGAAC" * 8  # 120 bases, open in five frames
PLAIN = b">a first\n" + SEQUENCE[:70] + b"\n" + SEQUENCE[70:] + b"\n>b\n" + SEQUENCE[7:] + b"\n"
RESULTS = (
    "sample_contigs.tsv",
    "sample_chunks.tsv",
    "sample_virus.fna",
    "sample_merged/prediction_results.txt",
    "sample_merged/prediction_results_highestscore.csv",
)


class Stopped(BaseException):
    """Stands for a kill."""


class Stopping(Disk):
    """Stops the run when a file of the given name is about to count, or at its ``after``-th change."""

    def __init__(self, name: str = "", after: int = 0) -> None:
        self.name, self.after = name, after

    def _change(self, name: str = "") -> None:
        self.after -= 1
        if self.after == 0 or name == self.name != "":
            raise Stopped

    def rename(self, old: Path, new: Path) -> None:
        self._change(new.name)
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._change()
        super().unlink(path)


@contextmanager
def interrupted_at(stage: str) -> Iterator[None]:
    """Have commands interrupted, as by Ctrl-C, where this stage begins."""

    def show(screen: Screen, event: Event) -> None:
        if isinstance(event, StageStarted) and event.stage == stage:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Screen, "show", show)
        yield


@contextmanager
def poisoned(fails: Callable[[str], bool]) -> Iterator[None]:
    """Have the toy encoders fail over the sequences of which this is true."""
    embed = ToyEncoder.embed

    def failing(encoder: ToyEncoder, sequences: list[str]) -> object:
        if any(map(fails, sequences)):
            raise ValueError("cannot embed this")
        return embed(encoder, sequences)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ToyEncoder, "embed", failing)
        yield


def open_bases(codons: int, seed: int) -> str:
    """Random codons, the same each time, none of which is a stop: the first frame is open."""
    return "".join(random.Random(seed).choices(CODONS, k=codons))


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


def check_refused(done, code: int, *says: object) -> None:
    """It ended with ``code`` and one message, which has all of ``says``."""
    assert "Traceback" not in done.err
    assert done.code == code, done.err
    assert all(str(text) in done.err for text in says), done.err
    assert done.out == ""
    assert "\x1b" not in done.err.strip().split("virnucpro: ")[-1]


def check_nothing_written(out: Path) -> None:
    """Neither results nor receipts, nor temporary files, nor anything beside the input."""
    assert written(out) == []
    assert not [*out.rglob("*.done"), *out.rglob("*.tmp")]


def check_accepted(done) -> None:
    """It ended well, in plain words."""
    assert "Traceback" not in done.err
    assert done.code == 0, done.err
    assert "Results in" in done.out


def result_bytes(out: Path, stem: str = "sample") -> dict[str, bytes]:
    """The result files of a run by name, the stem taken out."""
    return {name: (out / name.replace("sample", stem)).read_bytes() for name in RESULTS}


def custom_toy(folder: Path, classifier: Path, chunk_length: int) -> list[object]:
    """Options of ``predict`` for the toy encoders with a classifier; a configuration is written."""
    config = folder / "toy.yaml"
    config.write_text("features: {dnabert: {model_name: toy}, esm: {model_name: toy}}")
    options = ["-m", "custom", "-p", classifier, "-e", chunk_length, "-c", config]
    return [*options, "--device", "cpu", "--threads", "1"]


def toy_request(
    source: Path, out: Path, mates: Path | None = None, **values: object
) -> PredictionRequest:
    """A run of the toy encoders, in this process, with other settings where ``values`` has them."""
    settings = {"model_type": "toy", "device": "cpu", "threads": 1, **values}
    named = None if mates is None else str(mates)
    return PredictionRequest(str(source), out, Configuration().with_values(settings), mates=named)


class Shown(NamedTuple):
    """What a run said."""

    notices: list[str]
    pieces: Counter[str]  # that were computed, by stage


def carried_out(request: PredictionRequest, disk: Disk | None = None) -> Shown:
    """Carry out a run in this process."""
    events: list[Event] = []
    run_prediction(request, events.append, disk)
    pieces = {e.stage: e.todo for e in events if isinstance(e, StageStarted) and e.todo}
    return Shown([e.message for e in events if isinstance(e, Notice)], Counter(pieces))


def predict(call: Callable, folder: Path, data: bytes, *options: object, name: str = "sample.fa"):
    """Run the input ``data`` in ``folder``; its results go to ``folder / "out"``."""
    source = folder / name
    source.write_bytes(data)
    return call("predict", source, "-o", folder / "out", *TOY, *options)
