"""An encoder at work: tokens made ahead on the host, batches on the device, rows coming back.

This is what all transformers do alike around their forward pass. On a GPU the loop waits for
nothing but the batch before the last one: tokens are built in a thread, copies in both directions
are asynchronous and from pinned memory, and everything is on one stream and so in order.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.compute.budget import Bounds, Budget, free_memory, measured_budget, peak_memory
from virnucpro.compute.compiled import COMPILER_ERRORS, Example, Network
from virnucpro.compute.layers import GatedLinear, Linear
from virnucpro.compute.threads import CoreThreads, keep_freed_memory, prefetched
from virnucpro.contracts import Json, ReportProgress
from virnucpro.settings import CompileMode

STEP = 8  # tokens: fused attention on a GPU wants rows of its bias to begin at 16 bytes
AHEAD = 8  # batches whose tokens are ready before the GPU asks for them, and batches in its queue
BEGUN = 3  # batches of the next sequences that are queued before the last of these is awaited
# 30 ms of an H200 (670 TFLOP/s measured in bf16): several batches of DNABERT-S, one of ESM-2 3B.
QUEUED_FLOPS = 2e13


@dataclass(frozen=True)
class Batch:
    """Sequences that go through the model together."""

    indices: Sequence[int]  # which of the sequences
    tokens: int  # without padding
    inputs: tuple[torch.Tensor, ...]  # what the model takes, on the host
    embedded: torch.Tensor | None = None  # ``[B, dim]`` on the device, where begun ahead

    @classmethod
    def of(cls, indices: Sequence[int], tokens: int, *inputs: npt.NDArray[np.generic]) -> Batch:
        """Return a batch of NumPy arrays."""
        return cls(indices, tokens, tuple(map(torch.from_numpy, inputs)))

    def pinned(self) -> Batch:
        """Return the same batch in page-locked memory, from which a GPU copies by itself."""
        return replace(self, inputs=tuple(tensor.pin_memory() for tensor in self.inputs))


def example_sequences(full_batch: int, tokens: int) -> int:
    """Return the sequences of ``tokens`` each that a block is compiled with: a full batch.

    In a smaller one the compiler would measure kernels whose numbers all come from a cache. There
    are three at least, because the check takes one less and one is special to the compiler, and
    not as many as ``tokens``: equal numbers are taken for the same thing.
    """
    sequences = max(3, full_batch)
    return sequences + 1 if sequences == tokens else sequences


@dataclass
class PreparedBatches:
    """Batches of some sequences that are being made, of a budget of ``amount``."""

    amount: int
    first: list[Batch]  # those that are made
    rest: Generator[Batch]


class BatchedEncoder(ABC):
    """The loop over batches, with its budget and its figures. See :class:`contracts.Encoder`.

    A subclass builds batches and computes one. On a CPU the threads that torch may use compute a
    batch each: ``forward`` is called on all of them.

    Attributes:
        ahead: batches that are prepared in a thread; none on a CPU, which is busy anyway.
        host_wait_seconds: time in all in which the next tokens were not ready when needed.
        budget: tokens or sequences per batch.
        network: the model behind ``forward``, with its weights.
        dim: width of an embedding.
    """

    bounds: ClassVar[Bounds]
    compile_from_flops: ClassVar[float]
    """Floating-point operations from which it pays to compile on a GPU."""
    typical_tokens: ClassVar[int]
    """Tokens of a sequence, for that decision."""

    def __init__(self, network: Network, device: torch.device, budget: int | None) -> None:
        """``budget`` None measures, which sends batches through: a subclass calls this last.

        Between two blocks a batch on a CPU can be given up: it may take minutes.
        """
        self.network = network
        self.dim = network.embed.embedding_dim
        self.device = device
        self._compile_facts: dict[str, Json] = {"compiled": False, "compile_seconds": 0.0}
        self._threads = CoreThreads()
        self._on_gpu = device.type == "cuda"
        self.ahead = AHEAD if self._on_gpu else 0
        self.host_wait_seconds = 0.0
        if self._on_gpu:
            # cuDNN plans anew, for tenths of a second, whenever a batch has another shape.
            torch.backends.cuda.enable_cudnn_sdp(False)
        elif device.type == "cpu":
            keep_freed_memory()
            for block in network.blocks:
                block.register_forward_pre_hook(self._threads.check)
        if budget is not None:
            self.budget = Budget(budget, "given")
        elif self._on_gpu:
            self.budget = measured_budget(
                self.bounds,
                free_memory(device),
                lambda amount: peak_memory(device, lambda: self._compute(self.probe_batch(amount))),
            )
        else:
            self.budget = Budget(self.bounds.cpu, "default")
        self._release_memory()

    # What a subclass says.

    @abstractmethod
    def batches(self, sequences: Sequence[str]) -> Iterator[Batch]:
        """Put ``sequences`` into batches of the budget, with tokens; runs ahead, in a thread."""

    @abstractmethod
    def probe_batch(self, amount: int) -> Batch:
        """Make a batch of about the budget ``amount``, shaped as frames of 500 bases are."""

    @abstractmethod
    def compile_examples(self) -> list[Example]:
        """Return what a block is called with, one example of each kind."""

    @abstractmethod
    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Compute the inputs of a batch, on the device, to float32 ``[B, dim]`` there."""

    @abstractmethod
    def attention(self) -> str:
        """Return the kernel that torch takes for the attention of a full batch."""

    # What a stage calls.

    def prepare(self, sequences: Sequence[str]) -> PreparedBatches:
        """Begin to make the batches of ``sequences``: the first, and in a thread the others."""
        batches: Iterable[Batch] = self.batches(sequences)
        if self._on_gpu:
            batches = map(Batch.pinned, batches)
        amount, rest = self.budget.amount, prefetched(batches, self.ahead)
        first = list(islice(rest, BEGUN if self.ahead else 1))
        return PreparedBatches(amount, first, rest)

    def encode(
        self,
        sequences: Sequence[str],
        report: ReportProgress,
        prepared: PreparedBatches | None = None,
        following: Callable[[], PreparedBatches | None] = lambda: None,
    ) -> torch.Tensor:
        """Embed ``sequences``; float32 ``[n, dim]`` on the CPU, in their order.

        ``report`` is called when a batch has been computed; on a GPU, the next ones are already
        queued by then, and on a CPU as many as it has cores. What was ``prepared`` for these
        sequences is used, unless the budget has changed since then. Before the last batches are
        awaited, the first of ``following`` are begun, which is to be ``prepared`` in the next call.
        """
        started = time.perf_counter()
        if prepared is None or prepared.amount != self.budget.amount:
            prepared = self.prepare(sequences)
        self.host_wait_seconds += time.perf_counter() - started
        rows = torch.empty(len(sequences), self.dim, pin_memory=self._on_gpu)  # in batch order
        order: list[int] = []  # of each row, which sequence it is of
        self.budget.largest = 0
        report(0, 0)

        made = chain(prepared.first, prepared.rest)

        def batches() -> Iterator[Batch]:
            yield from self._timed(made)
            if others := following():
                with suppress(RuntimeError):  # out of memory, for example: their own turn says why
                    others.first = [
                        replace(each, embedded=self._compute(each)) for each in others.first
                    ]

        compute_all = self._compute_on_gpu if self._on_gpu else self._compute_on_cores
        with closing(prepared.rest), closing(compute_all(batches(), rows)) as computed:
            for batch in computed:
                order += batch.indices
                report(len(batch.indices), batch.tokens)
        ordered = torch.empty(len(sequences), self.dim)
        return ordered.index_copy_(0, torch.tensor(order).long(), rows)

    @property
    def step(self) -> int:
        """Lengths that batches are padded to are multiples of this."""
        return STEP if self._on_gpu else 1

    def facts(self) -> Mapping[str, Json]:
        """See :class:`virnucpro.contracts.Session`."""
        return {
            "budget": self.budget.amount,
            "unit": self.bounds.unit,
            "found": self.budget.found,
            "attention": self.attention(),
            **self._compile_facts,
        }

    def optimise(self, compile: CompileMode = "always", sequences: int = 0) -> None:
        """Do what pays for much work: pack weights on a CPU, compile the blocks on a GPU.

        With ``auto``, blocks are compiled where so many ``sequences`` are to be embedded that it
        gains more than the seconds that compiling takes.
        """
        if self.device.type == "cpu":
            self.pack()
            return
        pays = self._flops(self.typical_tokens * sequences) >= self.compile_from_flops
        if compile == "always" or (compile == "auto" and pays):
            self.compile()

    def _flops(self, tokens: int) -> float:
        return 2.0 * sum(p.numel() for p in self.network.blocks.parameters()) * tokens

    def compile(self) -> None:
        """Compile the blocks. Where that fails they stay as they are, and ``facts`` say why."""
        started = time.perf_counter()
        try:
            self.network.blocks.fuse(self.compile_examples())
        except COMPILER_ERRORS as error:
            reason = next(iter(str(error).splitlines()), "")
            self._compile_facts["compile_failed"] = f"{type(error).__name__}: {reason}"
        self._compile_facts["compiled"] = self.network.blocks.fused
        self._compile_facts["compile_seconds"] = round(time.perf_counter() - started, 3)
        self._release_memory()

    def pack(self) -> None:
        """Have the linear layers keep their weights as the products of a CPU read them.

        Nothing else can read them then: no compiler, and no other program that shares them.
        """
        for layer in self.network.blocks.modules():
            if isinstance(layer, (Linear, GatedLinear)):
                layer.pack()

    def random_state(self, sequences: int, tokens: int) -> torch.Tensor:
        """Return what could go into a block: small random numbers, ``[sequences, tokens, dim]``."""
        drawn = torch.randn(sequences, tokens, self.dim, generator=torch.Generator().manual_seed(0))
        return (drawn * 0.1).to(self.device).to(next(self.network.parameters()).dtype)

    def set_budget(self, amount: int) -> None:
        """Make batches of this budget from now on."""
        self.budget = Budget(amount, "given")
        self._release_memory()

    def shrink(self) -> bool:
        """Halve the budget; False where the last task already went one sequence at a time."""
        halved = self.budget.halve()
        self._release_memory()
        return halved

    # The loops of the two kinds of device.

    def _timed(self, prepared: Iterator[Batch]) -> Iterator[Batch]:
        """Yield the same batches; note the largest, and how long each was waited for."""
        while True:
            started = time.perf_counter()
            batch = next(prepared, None)
            self.host_wait_seconds += time.perf_counter() - started
            if batch is None:
                return
            self.budget.largest = max(self.budget.largest, len(batch.indices))
            yield batch

    def _compute_on_cores(self, batches: Iterator[Batch], rows: torch.Tensor) -> Generator[Batch]:
        """Yield batches whose embeddings are in ``rows``, one after the other."""
        start = 0
        with closing(self._threads.map(self._compute, batches)) as computed:
            for batch, embedded in computed:
                rows[start : start + len(embedded)] = embedded
                start += len(embedded)
                yield batch

    def _compute_on_gpu(self, batches: Iterator[Batch], rows: torch.Tensor) -> Generator[Batch]:
        """Yield the same; ``QUEUED_FLOPS`` or ``AHEAD`` others are in the GPU's queue by then."""
        start = 0
        flops = self._flops(1)
        queued: deque[tuple[torch.cuda.Event, Batch]] = deque()
        for batch in batches:
            embedded = self._compute(batch)
            rows[start : start + len(embedded)].copy_(embedded, non_blocking=True)
            start += len(embedded)
            finished = torch.cuda.Event()  # type: ignore[no-untyped-call]
            finished.record(torch.cuda.current_stream(self.device))
            queued.append((finished, batch))
            tokens = sum(batch.tokens for _, batch in islice(queued, 1, None))
            if tokens * flops >= QUEUED_FLOPS or len(queued) > AHEAD:
                yield self._oldest(queued)
        while queued:
            yield self._oldest(queued)

    def _oldest(self, queued: deque[tuple[torch.cuda.Event, Batch]]) -> Batch:
        finished, batch = queued.popleft()
        finished.synchronize()  # until the GPU has computed it
        return batch

    def _compute(self, batch: Batch) -> torch.Tensor:
        """Queue or compute one batch: float32 ``[B, dim]`` on the device."""
        if batch.embedded is not None:
            return batch.embedded
        with torch.inference_mode():
            return self.forward(
                *(tensor.to(self.device, non_blocking=True) for tensor in batch.inputs)
            )

    def _release_memory(self) -> None:
        """Give back the blocks that batches of another size left; never in the loop."""
        if self._on_gpu:
            torch.cuda.empty_cache()
