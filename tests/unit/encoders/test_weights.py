"""Files that are not what they should be: each is named, and nothing in them is run."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.hostile import Evil
from virnucpro.encoders.weights import load_weights, read_folder, read_pickle, read_safetensors
from virnucpro.errors import ModelError, RunInterruptedError
from virnucpro.workers.signals import interruptible


@pytest.mark.parametrize("form", ["zip", "legacy", *range(6)])
def test_a_pickle_that_would_run_code_is_refused(tmp_path, form):
    """As torch writes it, and in the protocols of pickle."""
    path, trace = tmp_path / "model.bin", tmp_path / "was-run"
    if isinstance(form, int):
        path.write_bytes(pickle.dumps(Evil(trace), protocol=form))
    else:
        torch.save({"a": Evil(trace)}, path, _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(ModelError, match=r"refused|cannot be read"):
        read_pickle(path)
    assert not trace.exists()


def test_safetensors_before_pickles(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "model.safetensors")
    torch.save({"b": torch.ones(1)}, tmp_path / "pytorch_model.bin")
    assert set(read_folder(tmp_path)) == {"a"}


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ('{"a": "../other.safetensors"}', r"model/other\.safetensors is missing"),
        ('{"a": 1, "b": []}', "index"),
    ],
)
def test_an_index_names_files_of_its_folder(tmp_path, places, message):
    inner = tmp_path / "model"
    inner.mkdir()
    save_file({"a": torch.ones(1)}, tmp_path / "other.safetensors")
    (inner / "model.safetensors.index.json").write_text(f'{{"weight_map": {places}}}')
    with pytest.raises(ModelError, match=message):
        read_folder(inner)


def test_threads_may_read_pickles_at_once(tmp_path):
    path = tmp_path / "counts.pth"
    torch.save({"counts": Fraction(1, 2)}, path)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: read_pickle(path, [Fraction]), range(200)))
    assert found == [{"counts": Fraction(1, 2)}] * 200


def test_a_broken_gpu_is_not_taken_for_a_damaged_model(monkeypatch):
    network, weights = torch.nn.Linear(2, 2, device="meta"), {"weight": torch.zeros(2, 2)}
    monkeypatch.setattr(torch.Tensor, "to", lambda *_: torch.zeros(2).view(3))
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        load_weights(network, weights, Path("model.pt"))


def _codes(read: Callable[[Path], object], path: Path, step: int) -> Iterator[int]:
    """Yield the exit codes of processes that get a signal at every ``step``-th call in ``read``."""
    for number in count(1, step):
        child = os.fork()
        if child == 0:
            calls = count(1)

            def profile(*_: object, last: int = number, calls: Iterator[int] = calls) -> None:
                if next(calls) == last:
                    os.kill(os.getpid(), signal.SIGTERM)

            code = 1
            try:
                with interruptible():
                    sys.setprofile(profile)
                    read(path)
                    sys.setprofile(None)
                    code = 0
            except RunInterruptedError as error:
                code = error.exit_code
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            return
        yield code


@pytest.mark.parametrize(
    ("save", "read", "step"), [(torch.save, read_pickle, 100), (save_file, read_safetensors, 1)]
)
def test_a_signal_is_not_taken_for_a_damaged_file(tmp_path, save, read, step):
    """torch makes an error of its own of what is raised in some of its calls."""
    save({"a": torch.ones(3)}, tmp_path / "file")
    codes = list(_codes(read, tmp_path / "file", step))
    assert len(codes) > 5
    assert set(codes) == {143}
