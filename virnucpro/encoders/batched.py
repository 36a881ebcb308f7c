"""An encoder at work: tokens made ahead on the host, batches on the device, rows coming back.

What both transformers do alike around their forward pass. On a GPU nothing in the loop waits for
the device but for the batch before the last one: tokens are built in a thread, copies in both
directions are asynchronous and from pinned memory, everything is on one stream and so in order.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from virnucpro.compute.budget import Bounds, Budget, CudaMemory, find_budget
from virnucpro.compute.compiled import BROKEN, Example, Stack
from virnucpro.compute.cores import Cores
from virnucpro.compute.linear import GatedLinear, Linear
from virnucpro.compute.prefetch import prefetched
from virnucpro.contracts import Json, ReportProgress

STEP = 8  # tokens: fused attention on a GPU wants rows of its bias to begin at 16 bytes
AHEAD = 2  # batches whose tokens are ready before the GPU asks for them
# The largest block that makes glibc keep blocks of its size (mallopt(3), M_MMAP_THRESHOLD).
KEPT = (32 << 20) - (1 << 16)


@dataclass(frozen=True)
class Batch:
    """Sequences that go through the model together.

    Attributes:
        indices: which of the sequences.
        tokens: theirs in all, without padding.
        inputs: what the model takes, on the host.
    """

    indices: Sequence[int]
    tokens: int
    inputs: tuple[torch.Tensor, ...]

    def pinned(self) -> Batch:
        """The same in page-locked memory, from which a GPU copies by itself."""
        return replace(self, inputs=tuple(tensor.pin_memory() for tensor in self.inputs))


def make_batch(indices: Sequence[int], tokens: int, *inputs: npt.NDArray[np.generic]) -> Batch:
    """A batch of NumPy arrays."""
    return Batch(indices, tokens, tuple(map(torch.from_numpy, inputs)))


class BatchedEncoder(ABC):
    """The loop over batches, its budget and its figures. See :class:`contracts.Encoder`.

    ``ahead`` batches are prepared in a thread; none on a CPU, which is busy anyway. ``waited`` are
    the seconds, in all, in which the next tokens were not ready when they were wanted. On a CPU
    the threads that torch may use compute a batch each; ``forward`` is called on all of them.
    """

    bounds: ClassVar[Bounds]
    worth: ClassVar[float]
    """Floating-point operations from which on a GPU it pays to compile."""
    typical: ClassVar[int]
    """Tokens of a sequence, for that decision."""

    def __init__(self, device: torch.device, budget: int | None, stack: Stack) -> None:
        """``budget`` None measures, which sends batches through: a subclass calls this last.

        Between two blocks of ``stack`` a batch on a CPU can be given up: it may take minutes.
        """
        self.device = device
        self._stack = stack
        self._compiled: dict[str, Json] = {"compiled": False, "compile_seconds": 0.0}
        self._cores = Cores()
        if device.type == "cpu":
            _keep_freed_memory()
            for block in stack:
                block.register_forward_pre_hook(self._cores.check)
        self.ahead = AHEAD if device.type == "cuda" else 0
        self.waited = 0.0
        memory = None
        if device.type == "cuda":
            memory = CudaMemory(device)
            # It plans anew, for tenths of a second, whenever a batch has another shape.
            torch.backends.cuda.enable_cudnn_sdp(False)
        self.budget = find_budget(self.bounds, budget, memory, self._try)
        self._release()

    @property
    @abstractmethod
    def dim(self) -> int:
        """Numbers an embedding."""

    @property
    @abstractmethod
    def network(self) -> nn.Module:
        """The model behind :meth:`forward`, with its weights."""

    @abstractmethod
    def batches(self, sequences: Sequence[str]) -> Iterator[Batch]:
        """``sequences`` in batches of the budget, tokens built; runs ahead, in a thread."""

    @abstractmethod
    def sample(self, amount: int) -> Batch:
        """A batch of about the budget ``amount``, of the shape that frames of 500 bases have."""

    @abstractmethod
    def examples(self) -> list[Example]:
        """What a block is called with, one of each kind."""

    @abstractmethod
    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The inputs of a batch, on the device, to float32 ``[B, dim]`` there."""

    @abstractmethod
    def attention(self) -> str:
        """The kernel that torch takes for the attention of a full batch."""

    def encode(self, sequences: Sequence[str], report: ReportProgress) -> torch.Tensor:
        """Embed ``sequences``; float32 ``[n, dim]`` on the CPU, in their order.

        ``report`` is called when a batch has been computed; on a GPU, the next one is already
        queued by then, and on a CPU as many as it has cores.
        """
        cuda = self.device.type == "cuda"
        staged = torch.empty(len(sequences), self.dim, pin_memory=cuda)
        order: list[int] = []
        self.budget.largest = 0
        with closing(self._source(sequences)) as source:
            computed = self._on_gpu(source, staged) if cuda else self._on_cores(source, staged)
            with closing(computed):
                for batch in computed:
                    order += batch.indices
                    report(len(batch.indices), batch.tokens)
        return torch.empty(len(sequences), self.dim).index_copy_(
            0, torch.tensor(order).long(), staged
        )

    @property
    def step(self) -> int:
        """Lengths that batches are padded to are multiples of this."""
        return STEP if self.device.type == "cuda" else 1

    def facts(self) -> Mapping[str, Json]:
        """See :class:`virnucpro.contracts.ModelSession`."""
        return {
            "budget": self.budget.amount,
            "unit": self.bounds.unit,
            "found": self.budget.found,
            "attention": self.attention(),
            "inference_mode": True,  # around every forward, in ``encode``
            **self._compiled,
        }

    def worth_compiling(self, sequences: int) -> bool:
        """Whether a GPU that embeds so many gains more than the seconds that compiling takes."""
        weights = sum(p.numel() for p in self._stack.parameters())
        return 2.0 * weights * self.typical * sequences >= self.worth

    def compile(self) -> None:
        """Compile the blocks: worth it where much is to be embedded, and for a GPU.

        Where that fails they stay as they are, and ``facts`` say why.
        """
        started = time.perf_counter()
        try:
            self._stack.fuse(self.examples())
        except torch.OutOfMemoryError:
            raise
        except BROKEN as error:
            reason = next(iter(str(error).splitlines()), "")
            self._compiled["compile_failed"] = f"{type(error).__name__}: {reason}"
        self._compiled["compiled"] = self._stack.fused
        self._compiled["compile_seconds"] = round(time.perf_counter() - started, 3)
        self._release()

    def make_fast(self) -> None:
        """What pays for much work: packed weights on a CPU, compiled blocks on a GPU."""
        if self.device.type == "cpu":
            self.pack()
        else:
            self.compile()

    def pack(self) -> None:
        """Have the linear layers keep their weights as the products of a CPU read them.

        Only what computes here can read them then: no compiler, and nobody they would be lent to.
        """
        for layer in self._stack.modules():
            if isinstance(layer, (Linear, GatedLinear)):
                layer.pack()

    def state(self, sequences: int, tokens: int) -> torch.Tensor:
        """What could go into a block: small random numbers, ``[sequences, tokens, dim]``."""
        drawn = torch.randn(sequences, tokens, self.dim, generator=torch.Generator().manual_seed(0))
        return (drawn * 0.1).to(self.device, next(self.network.parameters()).dtype)

    def use(self, amount: int) -> None:
        """Batches of this budget from now on."""
        self.budget = Budget(amount, "given")
        self._release()

    def shrink(self) -> bool:
        """Halve the budget; False where the last task already went one sequence at a time."""
        halved = self.budget.halve()
        self._release()
        return halved

    def _try(self, amount: int) -> torch.Tensor:
        return self._computed(self.sample(amount))

    def _source(self, sequences: Sequence[str]) -> Generator[Batch]:
        batches: Iterable[Batch] = self.batches(sequences)
        if self.device.type == "cuda":
            batches = map(Batch.pinned, batches)
        return prefetched(batches, self.ahead)

    def _drawn(self, source: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches; notes the largest, and how long each was waited for."""
        while True:
            started = time.perf_counter()
            batch = next(source, None)
            self.waited += time.perf_counter() - started
            if batch is None:
                return
            self.budget.largest = max(self.budget.largest, len(batch.indices))
            yield batch

    def _on_cores(self, source: Iterator[Batch], staged: torch.Tensor) -> Generator[Batch]:
        """Batches whose rows are in ``staged``, one after the other."""
        start = 0
        with closing(self._cores.map(self._computed, self._drawn(source))) as computed:
            for batch, rows in computed:
                staged[start : start + len(rows)] = rows
                start += len(rows)
                yield batch

    def _on_gpu(self, source: Iterator[Batch], staged: torch.Tensor) -> Generator[Batch]:
        """The same; the one after it is in the GPU's queue by then."""
        start = 0
        queued: deque[tuple[torch.cuda.Event, Batch]] = deque()
        for batch in self._drawn(source):
            rows = self._computed(batch)
            staged[start : start + len(rows)].copy_(rows, non_blocking=True)
            start += len(rows)
            queued.append((self._mark(), batch))
            if len(queued) > 1:
                yield _settled(queued)
        while queued:
            yield _settled(queued)

    def _computed(self, batch: Batch) -> torch.Tensor:
        with torch.inference_mode():
            return self.forward(
                *(tensor.to(self.device, non_blocking=True) for tensor in batch.inputs)
            )

    def _mark(self) -> torch.cuda.Event:
        """A mark in the GPU's queue behind the work just given to it."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _release(self) -> None:
        """Give back the blocks that batches of another size left; never in the loop."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def _settled(queued: deque[tuple[torch.cuda.Event, Batch]]) -> Batch:
    """Wait for the oldest batch."""
    event, batch = queued.popleft()
    event.synchronize()
    return batch


def _keep_freed_memory() -> None:
    """Have the C library keep what is freed, up to 64 MiB, instead of giving it back each time.

    The kernel would clear every page again: a tenth of the time of ESM-2 35M in float32.
    """
    torch.empty(KEPT, dtype=torch.uint8)  # glibc keeps blocks as large as any it has seen freed
