"""The threads of the host: tokens that are made ahead, and one thread a batch.

The items, their order and their bits stay the same, and no thread is left behind.
"""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import closing
from unittest.mock import Mock

import pytest
import torch

from tests.unit.encoders.small import (
    LETTERS,
    fair_model,
    make_dnabert,
    open_path,
    quiet,
    save_fair,
    sequences,
)
from virnucpro.compute.threads import PREFETCH_THREAD, CoreThreads, prefetched
from virnucpro.encoders.batched import AHEAD, BEGUN
from virnucpro.encoders.dnabert_s import SLICE


def _threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith(PREFETCH_THREAD)]


def test_items_are_made_in_the_thread_and_not_too_far_ahead():
    made: list[int] = []
    where: set[str] = set()

    def source() -> Iterator[int]:
        for n in range(20):
            made.append(n)
            where.add(threading.current_thread().name)
            yield n

    for n in prefetched(source(), 2):
        assert len(made) <= n + 3
    assert made == list(range(20))
    assert where == {f"{PREFETCH_THREAD}_0"}


@pytest.fixture(scope="module", params=["protein", "nucleotide"])
def encoder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    if request.param == "protein":
        return open_path(save_fair(fair_model(), folder / "esm2_t2_test.pt"), budget=64)
    return open_path(make_dnabert(folder / "dnabert"), "nucleotide", budget=8)


def test_encoding_is_the_same_to_the_bit_with_a_thread(encoder):
    letters = "ACGT"
    texts = sequences([30] * 40 + list(range(5, 25)), letters)
    reports: dict[int, list[tuple[int, int]]] = {0: [], 2: []}
    rows = {}
    for ahead in (0, 2):
        encoder.ahead = ahead
        rows[ahead] = encoder.encode(texts, lambda s, t, a=ahead: reports[a].append((s, t)))
    assert torch.equal(rows[0], rows[2])
    assert reports[0] == reports[2]
    assert sum(s for s, _ in reports[0]) == len(texts)
    assert encoder.host_wait_seconds > 0
    assert not _threads()


@pytest.fixture
def log(encoder, monkeypatch):
    """The encoder computes by the loop for a GPU; the log says what it does and awaits."""
    forward, event = encoder.forward, Mock()

    def logged(*inputs: torch.Tensor) -> torch.Tensor:
        log.append("compute")
        return forward(*inputs)

    log: list[str] = []
    event.synchronize.side_effect = lambda: log.append("await")
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(encoder, "_compute_on_cores", encoder._compute_on_gpu)
    monkeypatch.setattr(encoder, "ahead", 2)
    monkeypatch.setattr(encoder, "forward", logged)
    return log


def test_a_gpu_begins_the_next_sequences_before_the_last_of_these_are_awaited(encoder, log):
    texts = [sequences([30] * 90, "ACGT", seed) for seed in range(3)]
    plain = [encoder.encode(part, quiet) for part in texts]
    batches = len(log) // 6  # each is computed once and awaited once
    log.clear()
    prepared = [encoder.prepare(part) for part in texts]
    rows = []
    for part, own, others in zip(texts, prepared, [*prepared[1:], None], strict=True):
        rows.append(encoder.encode(part, quiet, own, following=lambda others=others: others))
        done = len(rows) * batches
        begun = min(done + BEGUN, len(texts) * batches)
        assert (log.count("compute"), log.count("await")) == (begun, done)
        last = len(log) - log[::-1].index("compute")
        assert log[last:] == ["await"] * (len(log) - last)
        assert len(log) - last > 1
    assert all(torch.equal(a, b) for a, b in zip(rows, plain, strict=True))


@pytest.mark.parametrize(("flops", "queued"), [(1.0, 2), (math.inf, AHEAD + 1)])
def test_more_batches_are_in_the_queue_where_they_are_short(
    encoder, log, monkeypatch, flops, queued
):
    monkeypatch.setattr("virnucpro.encoders.batched.QUEUED_FLOPS", flops)
    encoder.encode(sequences([30] * 160, "ACGT"), quiet)
    assert log.index("await") == queued
    assert log[queued : queued + 3] == ["await", "compute", "await"]


def test_what_cannot_be_begun_fails_in_its_own_turn(encoder, monkeypatch):
    texts, short = sequences([30] * 9, "ACGT"), sequences([5] * 9, "ACGT")
    others = encoder.prepare(short)
    theirs, forward, failures = others.first[0].inputs[0], encoder.forward, []

    def full(*inputs: torch.Tensor) -> torch.Tensor:
        if inputs[0] is theirs:
            failures.append(torch.OutOfMemoryError())
            raise failures[-1]
        return forward(*inputs)

    monkeypatch.setattr(encoder, "forward", full)
    assert len(encoder.encode(texts, quiet, following=lambda: others)) == len(texts)
    assert len(failures) == 1
    with pytest.raises(torch.OutOfMemoryError):
        encoder.encode(short, quiet, others)


def test_a_later_slice_of_nucleotides_is_in_its_place(tmp_path):
    """More sequences than are tokenised at once, of lengths that stand in no order."""
    encoder = open_path(make_dnabert(tmp_path / "dnabert"), "nucleotide", budget=256)
    texts = sequences([5 + n * 7 % 23 for n in range(SLICE + 40)], "ACGT")
    rows = encoder.encode(texts, lambda s, t: None)
    some = [0, 1, SLICE - 1, SLICE, SLICE + 39]
    alone = encoder.encode([texts[i] for i in some], lambda s, t: None)
    assert torch.allclose(rows[some], alone, atol=1e-6)


def test_batches_are_computed_side_by_side():
    torch.set_num_threads(3)
    together = threading.Barrier(3, timeout=30)
    assert len(list(CoreThreads().map(lambda _: together.wait(), range(9)))) == 9


def test_work_that_nobody_waits_for_ends_at_its_next_layer():
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


def test_an_encoder_gives_up_a_batch_between_two_layers(tmp_path):
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
    assert not _threads()
    assert len(layers) <= 3  # not the two that were at their first layer by then
    handle.remove()
    assert encoder.encode(texts, quiet).shape == (40, encoder.dim)


INTERRUPTED_START = """
import os, signal, sys, threading, torch
from virnucpro.compute.threads import CoreThreads
from virnucpro.errors import RunInterruptedError
from virnucpro.workers.signals import interruptible
start = threading.Thread.start
def interrupted(thread):
    start(thread)
    os.kill(os.getpid(), signal.SIGTERM)
torch.set_num_threads(2)
threading.Thread.start, cores = interrupted, CoreThreads()
try:
    with interruptible():
        list(cores.map(abs, range(9)))
except RunInterruptedError as error:
    sys.exit(error.exit_code)
"""


def test_a_signal_while_a_thread_starts_ends_the_process():
    command = [sys.executable, "-c", INTERRUPTED_START]
    assert subprocess.run(command, check=False, timeout=60).returncode == 143
