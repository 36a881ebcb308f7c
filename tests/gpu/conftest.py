"""Tests that want a GPU. ``pytest tests/gpu --on=cpu`` rehearses the body of each on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.models import write_pair
from tests.gpu.reference_embeddings import Models
from virnucpro.compute.compiled import Stack
from virnucpro.devices import visible_gpus
from virnucpro.precision import PRECISIONS

DEVICE = "test_gpu_device.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known where pytest is called on this folder; elsewhere it is the default."""
    parser.addoption("--on", choices=("cuda", "cpu"), default="cuda", help="device of tests/gpu")


@pytest.fixture(scope="session", autouse=True)
def forked_processes() -> None:
    """Workers start as they do for users: what has imported torch may have looked at the GPU."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On the CPU, keep the first case of each test: a rehearsal of its body."""
    if _on(config) == "cpu":
        first = {getattr(item, "originalname", item.name): item for item in reversed(items)}
        items[:] = [item for item in items if item in first.values()]


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


@pytest.fixture(autouse=True)
def _supported_precision(request: pytest.FixtureRequest, device: str) -> None:
    """A precision that the GPU does not have is the one thing that may be skipped on a GPU."""
    callspec = getattr(request.node, "callspec", None)
    row = PRECISIONS.get(callspec.params.get("precision")) if callspec is not None else None
    if row and device == "cuda" and torch.cuda.get_device_capability() < row.capability:
        pytest.skip(f"{row.name} needs compute capability {row.capability}")


@pytest.fixture(autouse=True)
def _rehearsed(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU blocks are compiled to graphs alone: the compiler of C++ takes minutes."""
    if device == "cpu":
        defaults: Any = Stack.fuse.__kwdefaults__
        monkeypatch.setitem(defaults, "backend", "eager")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that name models which take no time, and ask for files of 1,000 sequences."""
    return write_pair(tmp_path_factory.mktemp("models") / "tiny", "4x128x2", "4x128x4", "cpu", 1000)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Models of several sizes, and their embeddings on the CPU."""
    return Models(tmp_path_factory.mktemp("sizes"))
