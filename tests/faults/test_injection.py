"""A sample of the sweep (``make faults`` is all of it), and disks that are really full."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import pytest

from tests.forked import run_forked
from tools.fault_sweep import make_input
from virnucpro.configuration import Configuration
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest
from virnucpro.store.disk import Disk


def test_a_sample_of_stops_and_faults_is_survived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--every", 480, "--rounds", 2)
    done = run_forked(tmp_path, *options, module="tools.fault_sweep")
    with capsys.disabled():
        print("\n" + "\n".join(done.out.splitlines()[-7:]))
    assert done.code == 0, done.out + done.err


class Recording(Disk):
    """Notes what reaches the disk, in order."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.order: list[tuple[str, str]] = []
        self._names: dict[int, str] = {}

    def open_new(self, path: Path) -> BinaryIO:
        stream = super().open_new(path)
        self._names[id(stream)] = path.name
        return stream

    def sync(self, stream: BinaryIO) -> None:
        super().sync(stream)
        # The temporary name is .NAME.HOST.PID.tmp
        self.order.append(("sync", self._names[id(stream)][1:].rsplit(".", 3)[0]))

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self.order.append(("rename", new.name))

    def sync_folder(self, folder: Path) -> None:
        super().sync_folder(folder)
        self.order.append(("sync folder", folder.name))

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.order.append(("unlink", path.name))


def test_data_is_on_the_disk_before_its_receipt(tmp_path: Path) -> None:
    source = tmp_path / "in.fa"
    make_input(source, 900)
    disk = Recording(tmp_path / "out")
    values = {"model_type": "toy", "chunk_length": 200, "sequences_per_file": 1200, "device": "cpu"}
    settings = Configuration().with_values(values)
    request = PredictionRequest(str(source), tmp_path / "out", settings)
    run_prediction(request, lambda event: None, disk)
    order = disk.order
    names = [n for verb, n in order if verb == "rename" and n.endswith("_scores.tsv")]
    assert len(names) >= 2
    for name in names:  # others may be written at the same time, in other threads
        data, receipt = order.index(("rename", name)), order.index(("rename", f"{name}.done"))
        assert order.index(("sync", name)) < data
        assert order.index(("sync", f"{name}.done")) < receipt
        safe = receipt + order[receipt:].index(("sync folder", "in_merged"))
        for kind in ("DNABERT_S", "ESM"):  # features may be torn, but go only after that
            assert safe < order.index(("unlink", name.replace("scores.tsv", f"{kind}.pt")))
