"""Work of the host done ahead, in a thread, while the device computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
THREAD = "tokens-ahead"


def prefetched(items: Iterable[T], depth: int) -> Generator[T]:
    """The same ``items`` in the same order, ``depth`` of them made ahead in one thread.

    With ``depth`` 0 there is no thread, and each is made when it is asked for.
    An exception is raised where its item would have come. A consumer that stops early closes the
    generator: nothing more is begun then, and the thread has ended when ``close`` returns.
    """
    source = iter(items)
    if depth == 0:
        yield from source
        return
    end = object()

    def following() -> T | object:
        return next(source, end)

    with ThreadPoolExecutor(1, thread_name_prefix=THREAD) as thread:
        ahead: deque[Future[T | object]] = deque(thread.submit(following) for _ in range(depth))
        try:
            while (item := ahead.popleft().result()) is not end:
                ahead.append(thread.submit(following))
                yield item  # type: ignore[misc]
        finally:
            for future in ahead:
                future.cancel()
