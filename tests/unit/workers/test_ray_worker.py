"""A worker of a Ray cluster before it is used, and its mailbox; without Ray."""

from __future__ import annotations

import pytest

import virnucpro.workers.ray_pool as ray_pool
from virnucpro.contracts import Device, OutputFile
from virnucpro.workers.ray_pool import (
    VirNucProWorker,
    await_files,
    software,
)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> VirNucProWorker:
    """A worker that serves nobody, on the CPU of this process."""
    monkeypatch.setattr("virnucpro.workers.ray_pool.settle_on_device", lambda *_: None)
    monkeypatch.setattr(VirNucProWorker, "_serve", lambda *_: None)
    return VirNucProWorker(0, Device("cpu"), 1)


def test_a_worker_joins_where_files_and_versions_are_those_of_the_command(worker, tmp_path):
    (tmp_path / "a").write_bytes(b"1234")
    assert worker.join(software(), {tmp_path / "a": 4}) == Device("cpu")
    for files in ({tmp_path / "a": 4, tmp_path / "b": 4}, {tmp_path / "b": 4}):
        refusal = worker.join(software(), files)
        assert isinstance(refusal, str)
        assert refusal.endswith(f"there: {tmp_path / 'b'}")
    assert "another size" in str(worker.join(software(), {tmp_path / "a": 5}))
    assert str(worker.join("torch 0.1", {})).endswith("and this process torch 0.1")


def test_a_node_without_its_gpu_is_refused(monkeypatch):
    monkeypatch.setattr("virnucpro.workers.ray_pool.visible_gpus", lambda: [])
    assert isinstance(VirNucProWorker(0, Device("cuda"), 1).join(software(), {}), str)


def test_a_file_that_another_node_wrote_is_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "late"
    waits: list[float] = []

    def arrive(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            path.touch()

    monkeypatch.setattr(ray_pool.time, "sleep", arrive)
    await_files([OutputFile(path, 0, "", 0)])
    assert len(waits) == 3
