"""The kinds of failure of a task, and which exception is of which kind.

This is the only place where exceptions are told apart; the retry policy knows only the kinds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from virnucpro import errors
from virnucpro.errors import VirNucProError

FailureKind = Literal["data", "memory", "device", "run"]


@dataclass(frozen=True)
class WorkFailure:
    """Why a task, or the opening of a stage, failed. Picklable.

    Attributes:
        kind: ``data`` if a single sequence may be the cause; ``memory`` if the device had too
            little memory even for the smallest batch; ``device`` if the device does not answer in
            this process any more; ``run`` if every task would fail in the same way (a damaged
            model file, a full disk).
        error: name of the exception's class.
        message: what it said; only the first line, except for ``run``.
    """

    kind: FailureKind
    error: str
    message: str


def describe_failure(error: BaseException) -> WorkFailure:
    """Return what the scheduler needs to know about an exception that a worker met."""
    name = type(error).__name__
    message = str(error).strip() or name
    kind = failure_kind(error)
    return WorkFailure(kind, name, message if kind == "run" else message.splitlines()[0])


def failure_kind(error: BaseException) -> FailureKind:
    """Return the kind of failure that an exception stands for."""
    if isinstance(error, VirNucProError | OSError):
        return "run"  # OSError: a file that cannot be read is not the fault of a sequence
    torch = sys.modules.get("torch")  # if torch was never imported, the error cannot be torch's
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.OutOfMemoryError)):
        return "memory"
    if isinstance(error, getattr(torch, "AcceleratorError", ())):
        return "device"
    # cuBLAS and cuDNN report a broken device as a plain RuntimeError.
    if isinstance(error, RuntimeError) and str(error).startswith("CUDA error"):
        return "device"
    return "data"


def run_error(failure: WorkFailure) -> VirNucProError:
    """Return the exception that ends the run after a failure of kind ``run``.

    It has the class that the worker met if ``virnucpro.errors`` defines it, else OutputError.
    """
    error_class: Callable[[str], VirNucProError] = getattr(
        errors, failure.error, errors.OutputError
    )
    return error_class(failure.message)
