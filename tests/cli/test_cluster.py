"""``predict --cluster`` where no cluster can be used: one line says what to do."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from virnucpro.cli import run
from virnucpro.errors import DeviceError
from virnucpro.executors import cluster
from virnucpro.layout import RunLayout
from virnucpro.store.lock import locked


def _predict(source: Path, *options: str) -> int:
    return run(["predict", str(source), "-o", str(source.parent / "out"), "-m", "toy", *options])


def test_without_ray_the_command_says_what_to_install(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert _predict(source, "--cluster", "auto") == 64
    assert "pip install 'virnucpro[cluster]'" in capsys.readouterr().err
    assert _predict(source, "-q") == 0  # nothing of Ray is imported


def test_the_configuration_file_may_name_the_cluster_and_the_option_replaces_it(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    configuration = source.with_name("c.yaml")
    configuration.write_text("cluster: {address: '127.0.0.1:9', files: shared}\n")
    assert _predict(source, "-c", str(configuration)) == 64
    assert "--cluster 127.0.0.1:9: there is no Ray cluster" in capsys.readouterr().err
    assert _predict(source, "-q", "-c", str(configuration), "--cluster", "none") == 0
    record = (source.parent / "out" / "sample_run.json").read_text()
    assert '"cluster": "none"' in record


def test_a_second_command_leaves_what_the_first_one_proves_a_shared_folder_with(
    source: Path,
) -> None:
    layout = RunLayout(source.parent / "out", "sample", 500)
    layout.probe.parent.mkdir(parents=True)
    layout.probe.write_text("a random word")
    with locked(layout.lock):
        assert _predict(source, "-q") == 5
    assert layout.probe.read_text() == "a random word"


def test_what_a_killed_command_left_to_prove_a_shared_folder_is_removed(source: Path) -> None:
    left = RunLayout(source.parent / "out", "sample", 500).probe
    left.parent.mkdir(parents=True)
    left.write_text("a random word")
    assert _predict(source, "-q") == 0
    assert not left.exists()


def test_a_head_that_is_gone_ends_the_command_as_a_lost_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        cluster.await_head(address)
    with pytest.raises(DeviceError) as lost:
        cluster.await_head(address)
    assert lost.value.exit_code == 4
