"""What workers do for a run before its models are found."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from virnucpro.configuration import Configuration
from virnucpro.contracts import Device
from virnucpro.run.request import PredictionRequest
from virnucpro.run.workers import warm_up_workers
from virnucpro.stages import embedding
from virnucpro.workers.signals import Interruption


def begun(*requests: PredictionRequest) -> list[tuple[bool, int]]:
    """Whether the compiler is begun in workers, and in how many, for each call."""
    workers = Mock(interruption=Interruption())
    warm_up_workers(workers, requests)
    calls = (call.args for call in workers.pool.warm_up.mock_calls)
    return [(work.keywords["compile"], most) for work, most in calls]


@pytest.mark.parametrize(
    ("values", "frames", "expected"),
    [
        ({}, 10, (False, 1)),
        ({}, 20_000, (True, 41)),
        ({"compile": "always"}, 10, (True, 1)),
        ({"compile": "never"}, 20_000, (False, 41)),
        ({"compile": "always", "model_type": "lite"}, 20_000, (False, 41)),  # never compiled
    ],
)
def test_workers_begin_as_the_input_is_large_and_not_for_a_finished_run(
    tmp_path, values, frames, expected
):
    source = tmp_path / "in.fa"
    source.write_bytes(bytes(500 * frames))
    settings = Configuration().with_values({"model_type": "500", **values})
    request = PredictionRequest(str(source), tmp_path / "out", settings)
    assert begun(request) == [expected]
    assert begun(request, request)[0][1] == 1 + 2 * frames // 500
    request.layout.root.mkdir()
    request.layout.run_record.write_text("{}")
    assert begun(request) == []
    assert begun(replace(request, force=True)) == [expected]
    compiled = values == {"compile": "always"}
    assert begun(replace(request, source="-")) == [(compiled, 1)]


@pytest.mark.parametrize("compile", [True, False])
def test_a_gpu_is_begun_and_what_fails_is_left_to_the_opening(monkeypatch, compile):
    warm = Mock(side_effect=RuntimeError("no C compiler"))
    ones = Mock()
    monkeypatch.setattr(embedding, "warm_compiler", warm)
    monkeypatch.setattr(torch, "ones", ones)
    embedding.warm_up(Device("cpu"), compile=compile)
    assert not ones.called
    embedding.warm_up(Device("cuda", 0), compile=compile)
    assert ones.call_args.kwargs["device"] == "cuda"
    assert [call.args[0].type for call in warm.mock_calls] == ["cuda"] * compile
