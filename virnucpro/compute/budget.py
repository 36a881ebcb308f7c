"""How much goes through a model at once: found by measuring, halved when it was too much.

A budget is a power of two, so that what happens to be free on a GPU seldom changes it: batches
decide the last bits of an embedding. It is kept in the state of a run and used again on resume.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

Unit = Literal["tokens", "sequences"]
Found = Literal["measured", "default", "given"]

# Of the free memory. The rest is for what the probes do not see: longer sequences, batches with a
# mask, gaps between blocks, other programs on the same GPU.
SHARE = 0.5


@dataclass(frozen=True)
class Bounds:
    """What a family's budget may be, in its ``unit``.

    Attributes:
        cpu: on a CPU, without measuring.
        least: on a GPU; two batches of ``least`` and ``2 * least`` are what is measured.
        most: beyond it a batch gains nothing.
    """

    unit: Unit
    cpu: int
    least: int
    most: int


@dataclass
class Budget:
    """Tokens or sequences a batch at most, and how the number came about.

    ``largest`` is how many sequences the largest batch of the last task had, as far as it came.
    """

    amount: int
    found: Found
    largest: int = 0

    def halve(self) -> bool:
        """Half as much from now on; False where one sequence at a time was already too much."""
        if self.amount == 1 or self.largest == 1:
            return False
        self.amount //= 2
        return True


class Memory(Protocol):
    """The memory of a device."""

    def free(self) -> int:
        """Bytes that could still be allocated."""
        ...

    def peak(self, work: Callable[[], object]) -> int:
        """Bytes that ``work`` needs at its peak. Raises torch.OutOfMemoryError."""
        ...


class CudaMemory:
    """That of a GPU, as torch's allocator sees it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def free(self) -> int:
        """Free on the GPU, and held by the allocator without being used."""
        free, _ = torch.cuda.mem_get_info(self._device)
        held = torch.cuda.memory_reserved(self._device)
        return free + held - torch.cuda.memory_allocated(self._device)

    def peak(self, work: Callable[[], object]) -> int:
        """Bytes beyond those allocated before."""
        before = torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        work()
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - before


def find_budget(
    bounds: Bounds, given: int | None, memory: Memory | None, probe: Callable[[int], object]
) -> Budget:
    """``given`` if there is one; that of a CPU without ``memory``; else what fits into it.

    ``probe`` sends a batch of so much through the model.
    """
    if given is not None:
        return Budget(given, "given")
    if memory is None:
        return Budget(bounds.cpu, "default")
    return Budget(fitting(bounds, memory, probe), "measured")


def fitting(bounds: Bounds, memory: Memory, probe: Callable[[int], object]) -> int:
    """The largest ``least * 2**k`` up to ``most`` that takes a share of the free memory.

    Two probes give the bytes of one unit and those that every batch takes. ``least`` where even
    that is too much: the first task says so, and is done in halves.
    """
    free = memory.free()
    least = bounds.least
    try:
        probe(least)  # the first batch also pays for workspaces that stay
        one, two = memory.peak(lambda: probe(least)), memory.peak(lambda: probe(2 * least))
    except torch.OutOfMemoryError:
        return least
    a_unit = max(two - one, 0) / least
    fixed = max(one - a_unit * least, 0)
    budget = least
    while 2 * budget <= bounds.most and fixed + a_unit * 2 * budget <= SHARE * free:
        budget *= 2
    return budget
