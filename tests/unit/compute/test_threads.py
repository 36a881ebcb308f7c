"""One thread a batch: the same bits and the same order, however many threads there are."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from contextlib import closing

import pytest
import torch

from tests.unit.encoders.small import LETTERS, fair_model, open_path, quiet, save_fair, sequences
from virnucpro.compute.threads import PREFETCH_THREAD, CoreThreads


def test_batches_are_computed_side_by_side() -> None:
    torch.set_num_threads(3)
    together = threading.Barrier(3, timeout=30)
    assert len(list(CoreThreads().map(lambda _: together.wait(), range(9)))) == 9


def test_work_that_nobody_waits_for_ends_at_its_next_layer() -> None:
    torch.set_num_threads(2)
    cores = CoreThreads()
    ended: list[int] = []

    def work(n: int) -> int:
        try:
            while n:
                cores.check()
                time.sleep(0.001)
        except CancelledError:
            ended.append(n)
            raise
        return n

    with closing(cores.map(work, range(9))) as results:
        assert next(results) == (0, 0)
    assert ended
    assert len(ended) <= 2  # those at work; the others were never begun
    cores.check()


def test_an_encoder_gives_up_a_batch_between_two_layers(tmp_path) -> None:
    """A signal, or a report that fails: what is still being computed does not delay the end."""
    torch.set_num_threads(2)
    encoder = open_path(save_fair(fair_model(), tmp_path / "esm2_t2_test.pt"), budget=64)
    layers: list[int] = []
    first, last = encoder.network.blocks
    handle = first.register_forward_pre_hook(lambda *_: time.sleep(0.3))
    last.register_forward_hook(lambda *_: layers.append(1))

    def report(_: int, __: int) -> None:
        raise KeyError("the pipe to the parent is gone")

    texts = sequences([30] * 40, LETTERS)
    encoder.ahead = 2
    with pytest.raises(KeyError):
        encoder.encode(texts, report)
    assert not any(t.name.startswith(PREFETCH_THREAD) for t in threading.enumerate())
    assert len(layers) <= 3  # not the two that were at their first layer by then
    handle.remove()
    assert encoder.encode(texts, quiet).shape == (40, encoder.dim)
