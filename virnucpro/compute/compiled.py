"""The blocks of a model one after the other; on a GPU, one compiled block in place of all of them.

Between the matrix products a block reads and writes its whole state again and again.
``torch.compile`` makes one kernel of what lies between two of them. One block is compiled and
called with the weights of each, for any number and length of sequences, which are symbols to it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType

import torch
import torch.nn.functional as F
from torch import nn

from virnucpro.compute.private import compiler_options, mark_dynamic

# A compiled block must compute what the block does: the least cosine of a token's state, for random
# states, by the bytes of the smallest number of the block.
# Rounding alone leaves 0.9999 in bf16, and 0.996 in fp8 of a block 96 wide, by the size of weights:
# in 8 bit a last digit decides to which of few numbers a sum is rounded. A block that forgets its
# positions has 0.995, one that forgets its mask 0.97 (random ESM-2 of 3x640x10, bf16, on a
# CPU: tests/unit/compute/test_compiled.py).
LEAST_COSINE = {1: 0.99, 2: 0.9995, 4: 0.9995}
CompilerOptions = dict[str, str | int | bool | Callable[..., object]]
OPTIONS: CompilerOptions = {
    # Kernels are compiled in the worker itself, one after the other: a pool of processes for each
    # of eight workers would outnumber the cores, and outlive a worker that is killed.
    "compile_threads": 1,
    # Without it the faster of two kernels is measured, and a sum over a row may be taken in another
    # order by the next worker: no longer the same bits.
    "deterministic": True,
    # Compute a number again where it is wanted again, as long as that reads little. By default what
    # takes more than 8 inputs is written out in float32: in fp8, query and key.
    "realize_opcount_threshold": 200,
    "realize_reads_threshold": 32,
    "realize_acc_reads_threshold": 32,
    # Both halves of a rotary position at once, each number read once, not one half or the other.
    "max_complex_pointwise_cat_inputs": 0,
}
# Options that older versions of torch have in place of a newer one: with the same kernels for these
# blocks in torch 2.11, which does not tell complex inputs from simple ones.
OLDER_OPTIONS = {"max_complex_pointwise_cat_inputs": "max_pointwise_cat_inputs"}

BlockFunction = Callable[..., torch.Tensor]


# What a compiler that is missing or broken ends in, or compiled code whose assertions fail.
COMPILER_ERRORS = (
    *(RuntimeError, ImportError, OSError, AttributeError, AssertionError),
    subprocess.SubprocessError,
)


@dataclass(frozen=True)
class Example:
    """What a block is called with: its state ``[B, T, D]`` first, of small numbers.

    The less of a state comes through a block as it was, the more is checked. B, T and the sizes of
    the others must be unlike numbers: equal ones are taken for the same thing.
    """

    inputs: Sequence[torch.Tensor | None]  # None where a block may be called without it
    free: Sequence[Sequence[int]]  # of each, the dimensions that differ from batch to batch


@dataclass
class BlockCalls:
    """How often blocks were called after they were compiled, and how often that code was used.

    torch uses compiled code only while everything is as it was when it was compiled: the kind of
    inputs, the number of threads, and global settings. Otherwise the block runs as written, slower
    and with other last digits. Batches of one sequence are meant to, and are not counted.
    """

    compiled: int = 0
    uncompiled: int = 0


class Stack(nn.ModuleList):
    """Blocks of one signature: a state and what else they take, to the next state."""

    def __init__(self, blocks: Iterable[nn.Module]) -> None:
        super().__init__(blocks)
        self._fused: BlockFunction | None = None
        self.calls = BlockCalls()

    @property
    def fused(self) -> bool:
        """Whether the blocks are compiled."""
        return self._fused is not None

    def forward(self, x: torch.Tensor, *inputs: torch.Tensor | None) -> torch.Tensor:
        """``[B, T, D]`` to ``[B, T, D]``, through all blocks.

        A single sequence goes as it was written: to the compiler, one is a number of its own kind.
        So does what the compiled block was not made for, which :attr:`calls` counts.
        """
        if self._fused is None or len(x) == 1:
            for block in self:
                x = block(x, *inputs)
            return x
        inputs = tuple(map(_as_inference_tensor, inputs))
        uncompiled = self.calls.uncompiled
        with torch.compiler.set_stance("eager_on_recompile"):
            for block in self:
                x = self._fused(block, self.calls, x, *inputs)
        self.calls.compiled += len(self) - (self.calls.uncompiled - uncompiled)
        return x

    def fuse(self, examples: Sequence[Example], *, backend: str = "inductor") -> None:
        """Compile the blocks for batches like ``examples``, and check what came out.

        Kinds of blocks are told apart by the modules they are made of; each is compiled once for
        each example.

        Raises:
            One of ``COMPILER_ERRORS``: there is no compiler, it fails, or what it made computes
                something else; the stack is unchanged.
        """
        known_options = _known(OPTIONS) if backend == "inductor" else None
        own = FunctionType(_call.__code__.replace(), _call.__globals__)  # see below
        step = torch.compile(
            own, fullgraph=True, dynamic=False, backend=backend, options=known_options
        )
        kinds = {tuple(map(type, block.modules())): block for block in self}
        for block in kinds.values():
            for example in examples:
                _check(step, block, example)
        self._fused = step


def warm_compiler(device: torch.device) -> None:
    """Compile a small block: what the compiler does only once in a process takes seconds.

    Raises as :meth:`Stack.fuse`.
    """
    block = nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32)).to(device)
    example = Example((torch.ones(3, 16, 32, device=device),), ((0, 1),))
    Stack([block]).fuse([example])


class Network(nn.Module):
    """A model of blocks that are alike, between an embedding of tokens and what follows."""

    embed: nn.Embedding
    blocks: Stack


def _known(options: CompilerOptions) -> CompilerOptions:
    """Those that this version of torch has, or older ones: none changes what is computed."""
    known = compiler_options()
    named = {
        name if name in known else OLDER_OPTIONS.get(name, name): value
        for name, value in options.items()
    }
    return {name: value for name, value in named.items() if name in known}


def _as_inference_tensor(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """To compiled code, a tensor from outside of inference mode is another kind of tensor."""
    return tensor if tensor is None or tensor.is_inference() else tensor.clone()


def _call(
    block: nn.Module, calls: BlockCalls, x: torch.Tensor, *inputs: torch.Tensor | None
) -> torch.Tensor:
    """What is compiled. torch keeps eight variants of a piece of code: a stack has its own copy."""
    if not torch.compiler.is_compiling():  # Python runs this where compiled code is not used
        calls.uncompiled += 1
    state: torch.Tensor = block.forward(x, *inputs)  # its hooks are not for the compiler
    return state


def _check(step: BlockFunction, block: nn.Module, example: Example) -> None:
    """Have ``step`` compile ``block``, and compare what both make of the example."""
    with torch.inference_mode():
        inputs = [_as_inference_tensor(tensor) for tensor in example.inputs]
        expected = block(*inputs).float()
        for tensor, dimensions in zip(inputs, example.free, strict=True):
            if tensor is not None:
                for dimension in dimensions:
                    mark_dynamic(tensor, dimension)
        actual = step(block, BlockCalls(), *inputs).float()
        least = float(F.cosine_similarity(actual, expected, dim=-1).min())
        if not least >= LEAST_COSINE[min(p.element_size() for p in block.parameters())]:
            raise RuntimeError(f"a compiled block is unlike the block as written: cosine {least}")
        # Whatever else comes is to be served by the same code: this raises where it is not.
        with torch.compiler.set_stance("fail_on_recompile"):
            step(block, BlockCalls(), *_smaller(example))


def _smaller(example: Example) -> Iterator[torch.Tensor | None]:
    """The inputs of a batch of other sizes: one sequence and eight tokens less."""
    assert example.inputs[0] is not None
    less = {example.inputs[0].shape[0]: 1, example.inputs[0].shape[1]: 8}
    for tensor, dimensions in zip(example.inputs, example.free, strict=True):
        if tensor is not None:
            for dimension in dimensions:
                size = tensor.shape[dimension]
                tensor = tensor.narrow(dimension, 0, size - less[size])
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        yield tensor
