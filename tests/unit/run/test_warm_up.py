"""What workers do for a run before its models are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from virnucpro.configuration import Configuration
from virnucpro.contracts import Device
from virnucpro.executors.signals import Interruption
from virnucpro.run.request import PredictionRequest
from virnucpro.run.workers import warm_up_workers
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.stages import embedding

MODELS = AnalysisSettings(model_type="500")


def begun(requests: list[PredictionRequest]) -> list[tuple[bool, int]]:
    """Return whether the compiler is begun in workers, and in how many, for each call."""
    calls: list[tuple[bool, int]] = []

    def warm_up(work: Any, most: int) -> None:
        assert work.func is embedding.warm_up
        calls.append((work.keywords["compile"], most))

    pool = SimpleNamespace(warm_up=warm_up)
    executor: Any = SimpleNamespace(pool=pool, interruption=Interruption())
    warm_up_workers(executor, requests)
    return calls


@pytest.mark.parametrize(
    ("compile", "analysis", "frames", "expected"),
    [
        ("auto", MODELS, 10, (False, 1)),
        ("auto", MODELS, 20_000, (True, 41)),
        ("always", MODELS, 10, (True, 1)),
        ("never", MODELS, 20_000, (False, 41)),
        ("always", AnalysisSettings(model_type="lite"), 20_000, (False, 41)),  # never compiled
    ],
)
def test_workers_begin_as_the_input_is_large(
    tmp_path: Path, compile: Any, analysis: AnalysisSettings, frames: int, expected: Any
) -> None:
    source = tmp_path / "in.fa"
    source.write_bytes(bytes(500 * frames))
    settings = Configuration(analysis, machine=MachineSettings(compile=compile))
    request = PredictionRequest(str(source), tmp_path / "out", settings)
    assert begun([request]) == [expected]
    two = begun([request, request])
    assert two[0][1] == 1 + 2 * frames // 500


def test_nothing_begins_for_a_finished_run(tmp_path: Path) -> None:
    request = PredictionRequest("in.fa", tmp_path, Configuration(MODELS))
    request.layout.run_json.write_text("{}")
    assert begun([request]) == []
    assert begun([replace(request, force=True)]) == [(False, 1)]
    assert begun([PredictionRequest("-", tmp_path, Configuration(MODELS))]) == [(False, 1)]


@pytest.mark.parametrize("compile", [True, False])
def test_a_gpu_is_begun_and_what_fails_is_left_to_the_opening(
    monkeypatch: pytest.MonkeyPatch, *, compile: bool
) -> None:
    done: list[str] = []

    def fail(device: torch.device) -> None:
        done.append(f"compiler for {device.type}")
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(embedding, "warm_compiler", fail)
    monkeypatch.setattr(torch, "ones", lambda *_, device: done.append(device))
    embedding.warm_up(Device("cpu"), compile=compile)
    assert done == []
    embedding.warm_up(Device("cuda", 0), compile=compile)
    assert done == ["cuda", *(["compiler for cuda"] if compile else [])]
