"""What kind of failure an error is, and the search for records that cannot be computed.

They are found by trials: workers compute fewer and fewer records of the file, until one is alone,
and write nothing. Then the file is computed without it.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Literal

from virnucpro.contracts import FailedRow, Task
from virnucpro.errors import VirNucProError

FailureKind = Literal["data", "memory", "device", "broken", "run"]

# What an error says when a device or the host has too little memory: torch's allocators, CUDA's
# runtime and driver (also through Inductor's launcher), Triton, cuBLAS, cuDNN and other libraries,
# and the C++ library.
MEMORY_WORDS = re.compile(
    r"out[ _]of[ _]memory|memoryallocation|alloc(ation)?_failed|not enough memory|allocate memory"
    r"|failed to allocate|bad_alloc",
    re.IGNORECASE,
)
# What it says when the device, its driver or a library of the vendor failed, or the host has no
# threads left. A good sequence must not be given up for it, nor for a kernel that is not right for
# the GPU.
DEVICE_WORDS = re.compile(
    r"cuda|nvidia driver|triton error|out of resource|cublas|cudnn|cufft|curand|cusolver|cusparse"
    r"|nccl|nvml|nvrtc|ptxas|device-side assert|start new thread",
    re.IGNORECASE,
)
# Errors of these modules are about compilers, devices and processes, never about a sequence.
DEVICE_MODULES = re.compile(r"triton\.|torch\.(cuda|distributed|_dynamo|_inductor)")


@dataclass(frozen=True)
class WorkFailure:
    """Why a task, or the opening of a stage, failed.

    Attributes:
        kind: ``data`` if a single sequence may be the cause; ``memory`` if the device had too
            little memory even for the smallest batch; ``device`` if the device does not answer in
            this process any more; ``broken`` if the device, or the model on it, fails even for a
            sequence that is known to be good; ``run`` if every task would fail in the same way (a
            damaged model file, a full disk).
        error: name of the exception's class.
        message: what it said; only the first line, except for ``run``.
    """

    kind: FailureKind
    error: str
    message: str


def describe_failure(error: BaseException) -> WorkFailure:
    """Return what the scheduler needs to know about an exception that a worker met."""
    name, torch = type(error).__name__, sys.modules.get("torch")
    message, text = str(error).strip() or name, str(error)
    # Errors of a device are told by their words: most libraries raise a plain RuntimeError, and
    # torch an AssertionError where it was built without CUDA.
    plain = isinstance(error, RuntimeError | AssertionError)
    kind: FailureKind = "data"
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        kind = "memory"
    elif isinstance(error, VirNucProError | OSError):
        # OSError: a file that cannot be read is not the fault of a sequence
        return WorkFailure("run", name, message)
    elif plain and MEMORY_WORDS.search(text):
        kind = "memory"
    elif (plain and DEVICE_WORDS.search(text)) or DEVICE_MODULES.match(type(error).__module__):
        kind = "device"
    elif isinstance(error, getattr(torch, "AcceleratorError", ())):
        kind = "device"  # if torch was never imported, the error cannot be torch's
    return WorkFailure(kind, name, message.splitlines()[0])


def search_records(task: Task) -> Generator[Task, WorkFailure | None, None]:
    """Yield trials of fewer and fewer records, and at last the task without those that fail alone.

    Sent is the failure of each trial, or None. A record that raises an error alone is given up, and
    one that ends its worker alone when it has done that twice.
    """

    def divided(start: int, stop: int) -> list[tuple[int, int]]:
        middle = (start + stop) // 2
        return [(middle, stop), (start, middle)] if stop - start > 1 else [(start, stop)]

    found: list[FailedRow] = []
    untried = divided(0, task.count + len(task.excluded))  # the next range is the last one
    while untried:
        start, stop = untried.pop()
        left_out = sum(start <= failed.row < stop for failed in task.excluded)
        trial = replace(task, trial=(start, stop), count=stop - start - left_out)
        failure = yield trial
        if stop - start == 1 and failure is not None and failure.kind != "data":
            failure = yield trial
        if failure is not None and stop - start > 1:
            untried += divided(start, stop)
        elif failure is not None:
            found.append(FailedRow(start, failure.error, failure.message))
    yield replace(task, excluded=(*task.excluded, *found), count=task.count - len(found))
