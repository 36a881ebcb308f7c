"""Threads: batches on the cores of a CPU, and work of the host that is done ahead.

Each batch is computed on one thread, as many side by side as there are threads. A matrix product
that several threads share is cut in as many parts, and MKL computes a part of one to three rows
with another kernel than the whole: an embedding's last bits would depend on the number of threads,
so on the machine, ``--threads`` and ``--cpu-workers``. On one thread they depend on the batch
alone. Threads that never wait for each other are also faster on a busy machine.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch

BATCH_THREAD = "batch"
PREFETCH_THREAD = "tokens-ahead"
BATCHES_PER_THREAD = 2  # that are made before the first of them has been computed
# The largest block that makes glibc keep blocks of its size (mallopt(3), M_MMAP_THRESHOLD).
LARGEST_KEPT_BLOCK = (32 << 20) - (1 << 16)

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread in this block, and as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def call_mkl_functions_once() -> None:
    """Call once what MKL dispatches at its first call, while there is one thread to ask for it.

    Two threads that ask at once may get a kernel of half the digits (pytorch/pytorch#188792).
    """
    for name in ("exp", "log", "sqrt", "rsqrt", "tanh", "cos", "sin"):
        getattr(torch, name)(torch.ones(1))


def keep_freed_memory() -> None:
    """Have the C library keep what is freed, up to 64 MiB, instead of giving it back each time.

    The kernel would clear every page again: a tenth of the time of ESM-2 35M in float32, and a
    quarter of that of lite.
    """
    # glibc keeps blocks as large as any it has seen freed.
    torch.empty(LARGEST_KEPT_BLOCK, dtype=torch.uint8)


@dataclass
class CoreThreads:
    """As many threads as torch may use in the thread that calls."""

    _abandoned: threading.Event = field(default_factory=threading.Event)

    def check(self, *_: object) -> None:
        """End the work it is called in; to be called as a forward pre-hook of a layer, for example.

        Raises:
            CancelledError: a signal arrived, or another batch failed.
        """
        if self._abandoned.is_set():
            raise CancelledError

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> Generator[tuple[T, R]]:
        """Yield each item and what ``work`` makes of it on one thread, in order.

        ``items`` are drawn in the calling thread. An exception is raised where its result would
        have come. When the generator is left early, nothing more is begun, and what is being
        computed has ended when ``close`` returns.
        """
        threads = torch.get_num_threads()
        if threads == 1:
            for item in items:
                yield item, work(item)
            return
        call_mkl_functions_once()
        # How many threads torch computes with is a setting of each thread.
        pool = ThreadPoolExecutor(threads, BATCH_THREAD, torch.set_num_threads, (1,))
        queued: deque[tuple[T, Future[R]]] = deque()
        with one_thread():  # the calling thread too: others would only spin beside those at work
            try:
                for item in items:
                    queued.append((item, pool.submit(work, item)))
                    if len(queued) == BATCHES_PER_THREAD * threads:
                        yield _oldest_result(queued)
                while queued:
                    yield _oldest_result(queued)
            finally:
                self._abandoned.set()
                # A signal may have come while a thread started, of which the pool does not know.
                # It, too, ends when the pool is shut down.
                pool.shutdown(cancel_futures=True)
                self._abandoned.clear()


def _oldest_result(queued: deque[tuple[T, Future[R]]]) -> tuple[T, R]:
    """Wait for the oldest item. It stays in the queue until then: a signal may come first."""
    item, future = queued[0]
    result = future.result()
    queued.popleft()
    return item, result


def prefetched(items: Iterable[T], depth: int) -> Generator[T]:
    """Yield the same ``items`` in the same order, ``depth`` of them made ahead in one thread.

    With ``depth`` 0 there is no thread, and each is made when it is asked for.
    An exception is raised where its item would have come. A consumer that stops early closes the
    generator: nothing more is begun then, and the thread has ended when ``close`` returns.
    """
    source = iter(items)
    if depth == 0:
        yield from source
        return
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix=PREFETCH_THREAD) as thread:
        ahead: deque[Future[T | object]] = deque(
            thread.submit(next, source, end) for _ in range(depth)
        )
        try:
            while (item := ahead.popleft().result()) is not end:
                ahead.append(thread.submit(next, source, end))
                yield item  # type: ignore[misc]
        finally:
            for future in ahead:
                future.cancel()
