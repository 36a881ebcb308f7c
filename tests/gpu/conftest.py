"""Tests that want a GPU. ``pytest tests/gpu --on=cpu`` rehearses on the CPU what can be there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.models import Pair, write_pair
from tests.gpu.reference_embeddings import Models
from virnucpro.devices import visible_gpus
from virnucpro.precision import PRECISIONS

DEVICE = "test_gpu_device.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known where pytest is called on this folder; elsewhere it is the default."""
    parser.addoption("--on", choices=("cuda", "cpu"), default="cuda", help="device of tests/gpu")
    parser.addoption(
        "--outcomes", type=Path, help="file for a line of JSON per test that has ended"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Note outcomes as they come: a report at the end is lost where the tests are cut off.

    With pytest-xdist the tests run in other processes, which report to the one that has the file.
    """
    path = config.getoption("--outcomes", default=None)
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(path))


class Outcomes:
    """Appends the outcome of every test to a file at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(b"")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a line when a test was called, or when its preparation or its end went wrong."""
        if report.when != "call" and report.outcome == "passed":
            return
        row = {"test": report.nodeid, "outcome": report.outcome, "seconds": report.duration}
        if report.failed:
            row["error"] = report.longreprtext[-4000:]
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _on(config: pytest.Config) -> str:
    on: str = config.getoption("--on", default="cuda")
    return on


def _absent(config: pytest.Config) -> bool:
    """A GPU that the driver knows and torch cannot use is not absent: tests are to fail there."""
    return _on(config) == "cuda" and not (torch.cuda.is_available() or visible_gpus())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without CUDA one module is left, to say so in one line."""
    name = collection_path.name
    return True if name.startswith("test_") and name != DEVICE and _absent(config) else None


@pytest.fixture(scope="session", autouse=True)
def device(request: pytest.FixtureRequest) -> str:
    """``cuda`` or ``cpu``. Without CUDA everything here is skipped; with it, nothing is."""
    if _absent(request.config):
        pytest.skip("no CUDA device: nothing of tests/gpu is run")
    return _on(request.config)


@pytest.fixture
def gpu(device: str) -> None:
    """For what a CPU does not have."""
    if device != "cuda":
        pytest.skip("only on a GPU")


@pytest.fixture(autouse=True)
def _supported_precision(request: pytest.FixtureRequest, device: str) -> None:
    """A precision that the GPU does not have is the one thing that may be skipped on a GPU."""
    callspec = getattr(request.node, "callspec", None)
    row = PRECISIONS.get(callspec.params.get("precision")) if callspec is not None else None
    if row and device == "cuda" and torch.cuda.get_device_capability() < row.capability:
        pytest.skip(f"{row.name} needs compute capability {row.capability}")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Models on the disk that take no time, files of 1,000 sequences."""
    return write_pair(tmp_path_factory.mktemp("models") / "tiny", "4x128x2", "4x128x4", "cpu", 1000)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Models of several sizes, and their embeddings on the CPU."""
    return Models(tmp_path_factory.mktemp("sizes"))
