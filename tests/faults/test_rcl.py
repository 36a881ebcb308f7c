"""``rcl embed``, ``predict`` and ``train``: full disks and Ctrl-C at their writes."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
import yaml

from tests.unit.encoders.small import fair_model, save_fair
from tests.unit.rcl.made_proteins import proteins, write_tables
from virnucpro.store.disk import Bytes, Disk

Write = Callable[[Disk, BinaryIO, Bytes], None]


def struck_write(number: int, strike: Callable[[], None]) -> Write:
    """What takes the place of ``Disk.write``, so that the write of this number, from 1, is torn."""
    write, count = Disk.write, 0

    def torn(disk: Disk, stream: BinaryIO, data: Bytes) -> None:
        nonlocal count
        count += 1
        if count == number:
            write(disk, stream, data[: len(data) // 2])
            strike()
            data = data[len(data) // 2 :]
        write(disk, stream, data)

    return torn


def full() -> None:
    """Fail as a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupt() -> None:
    """Do what Ctrl-C does."""
    os.kill(os.getpid(), signal.SIGINT)


CODES = {full: 6, interrupt: 130}
CONFIG = {
    "models": {"cnn": {"channels": [4], "kernel_sizes": [3]}},
    "training": {"epochs": 2, "batch_size": 8},
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables, a configuration, and a small ESM-2."""
    folder = tmp_path_factory.mktemp("inputs")
    write_tables(folder, 12)
    records = [f">{protein.accession}\n{protein.sequence}\n" for protein in proteins(12)]
    (folder / "proteins.fa").write_text("".join(records))
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    save_fair(fair_model(layers=1, width=320, heads=4), folder / "tiny.pt")
    return folder


def _train(inputs: Path, out: Path) -> list[object]:
    options = ("--model", "cnn", "--config", inputs / "config.yaml", "--split", "random")
    return ["rcl", "train", *options, *_tables(inputs), "--output-dir", out]


def _embed(inputs: Path, out: Path) -> list[object]:
    options = ("--esm-model", inputs / "tiny.pt", "--checkpoint-every", 7)
    return ["rcl", "embed", *options, *_tables(inputs), "--output-dir", out]


def _predict(inputs: Path, out: Path) -> list[object]:
    options = ("--chunk-size", 7, "--residues", "--rcl-fasta", "--device", "cpu", "-t", 1)
    return ["rcl", "predict", inputs / "proteins.fa", *options, "-o", out]


def _tables(inputs: Path) -> tuple[object, ...]:
    tables = ("--serpins", inputs / "serpins.csv", "--others", inputs / "others.csv")
    return (*tables, "--device", "cpu", "-t", 1)


def _results(out: Path) -> dict[str, bytes]:
    """The content of all files, except that of records, which have the time in them."""
    files = {str(path.relative_to(out)): path for path in out.rglob("*") if path.is_file()}
    return {
        name: b"" if "_run.json" in name else path.read_bytes()
        for name, path in files.items()
        if ".checkpoints" not in name and "tfevents" not in name
    }


@pytest.mark.parametrize("command", [_train, _embed, _predict])
def test_full_disks_and_ctrl_c_lose_nothing(call, inputs, tmp_path, command, monkeypatch):
    """Start after start meets one of them, each a write later than the one before."""
    assert call(*command(inputs, tmp_path / "whole")).code == 0
    words = command(inputs, tmp_path / "out")
    for number in range(1, 100):
        strike = (full, interrupt)[number % 2]
        with monkeypatch.context() as patch:
            patch.setattr(Disk, "write", struck_write(number, strike))
            done = call(*words)
        if done.code == 0:
            break
        assert done.code == CODES[strike], done.err
        assert "Traceback" not in done.err
        assert not list((tmp_path / "out").rglob("*.tmp"))
    assert number > 4
    assert _results(tmp_path / "out") == _results(tmp_path / "whole")
