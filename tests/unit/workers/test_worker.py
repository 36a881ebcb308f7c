"""What a worker does in which order, and which kind of failure an exception is."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch._dynamo
import torch._inductor.exc
import torch.distributed

from tests.unit.workers.fake_pool import FakeStage
from virnucpro.contracts import Device, ReportProgress, Session, Task, TaskResult
from virnucpro.events import Progressed, WorkerReady
from virnucpro.workers.pool import PoolEvent, WorkEnded
from virnucpro.workers.worker import TaskRunner, describe_failure, set_torch_threads

GPU, CPU = Device("cuda", 0, "H200", "GPU-aaaa"), Device("cpu", threads=2)
BATCHES = 3
BOUND = 60.0  # seconds, for a hang


class Recording(FakeStage):
    """Its session notes what is begun, and a task is not written before the next one is computed.

    ``waits``: whether writing waits for that, as it can where the device works by itself.
    """

    def __init__(self, *, waits: bool) -> None:
        self.log: list[str] = []
        self.waits = waits
        self.computing = [threading.Event() for _ in range(9)]

    def open(self, device: Device) -> Session:
        self.threads = torch.get_num_threads()
        return RecordingSession(self)


class RecordingSession(Session):
    """Tasks are known by the number of their first sequence."""

    def __init__(self, stage: Recording) -> None:
        self._stage, self.facts = stage, {}

    def prepare(self, task: Task) -> None:
        self._stage.log.append(f"prepare {_number(task)}")

    def compute(self, task: Task, report: ReportProgress) -> Callable[[], TaskResult]:
        number, stage = _number(task), self._stage
        for batch in range(BATCHES):
            stage.log.append(f"compute {number}.{batch}")
            report(1, 10)
            if batch == 1:
                stage.computing[number].set()

        def write() -> TaskResult:
            following = stage.computing[number + 1]
            if stage.waits and number < 3 and not following.wait(BOUND):
                raise TimeoutError("nothing is computed while this is written")
            stage.log.append(f"write {number}")
            return TaskResult(task, ())

        return write


def _number(task: Task) -> int:
    return int(task.params["start"])


def _run_four(stage: Recording, device: Device) -> list[PoolEvent]:
    """Carry out four tasks, of which a worker always knows the next one."""
    tasks = stage.tasks(4, size=1)
    events: list[PoolEvent] = []
    following: list[Task] = []
    runner = TaskRunner(0, device, events.append, lambda: following[0] if following else None)
    runner.take(stage)
    for position, task in enumerate(tasks):
        following[:] = tasks[position + 1 : position + 2]
        runner.take(task)
    runner.take(stage)  # waits for the last one
    return events


def test_a_device_never_waits_for_the_host():
    """Each task is prepared before the one before it is computed, and written after its begin."""
    stage = Recording(waits=True)
    events = _run_four(stage, GPU)
    log = stage.log
    gaps = 0
    for number in range(3):
        assert log.index(f"prepare {number + 1}") < log.index(f"compute {number}.2")
        gaps += log.index(f"write {number}") < log.index(f"compute {number + 1}.1")
    assert gaps == 0
    assert sum(entry.startswith("prepare") for entry in log) == 3
    assert [_number(e.task) for e in events if isinstance(e, WorkEnded)] == [0, 1, 2, 3]


def test_the_threads_of_one_thread_are_not_those_of_another():
    """As a run has them set at its start, and then has scores made in a thread of its own."""
    before = torch.get_num_threads()
    found = []

    def first() -> None:
        set_torch_threads(3)
        other = threading.Thread(target=set_torch_threads, args=(1,))
        other.start()
        other.join(BOUND)
        found.append(torch.get_num_threads())

    thread = threading.Thread(target=first)
    thread.start()
    thread.join(BOUND)
    torch.set_num_threads(before)
    assert found == [3]


def test_a_cpu_does_one_thing_after_the_other():
    stage = Recording(waits=False)
    events = _run_four(stage, CPU)
    assert stage.threads == 2  # else torch would not use what is compiled there
    steps = [*(f"compute {{}}.{batch}" for batch in range(BATCHES)), "write {}"]
    assert stage.log == [step.format(number) for number in range(4) for step in steps]
    kinds = [type(event) for event in events if not isinstance(event, WorkerReady)]
    assert kinds == [Progressed, WorkEnded] * 4


@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "gpu"])
def test_what_single_mode_computes_is_taken_back(device):
    """It is computed again in its task: no more would be done than there is."""
    stage, events = Recording(waits=False), list[PoolEvent]()
    runner = TaskRunner(0, device, events.append)
    for work in (stage, replace(stage.task(0, 2), single=0), stage):
        runner.take(work)
    done = [event.sequences for event in events if isinstance(event, Progressed)]
    assert sum(done) == 0
    (ended,) = [event for event in events if isinstance(event, WorkEnded)]
    assert ended.outcome == ()


class OutOfResources(Exception):
    """As Triton raises it."""


OutOfResources.__module__ = "triton.runtime.errors"
MISSING_SYMBOL = torch.cuda.DeferredCudaCallError("CUDA call failed lazily at initialization")

# What torch, Triton, Inductor and the libraries of NVIDIA say in a plain RuntimeError.
MEMORY_MESSAGES = [
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.2 GiB",
    "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "NCCL Error 1: unhandled cuda error: Failed to CUDA calloc async 608 bytes: out of memory",
    "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 9999999999 bytes. Error code 12 (Cannot allocate memory)",
    "DefaultCPUAllocator: not enough memory: you tried to allocate 4000000 bytes.",
    "std::bad_alloc",
    'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":1131',
]
DEVICE_MESSAGES = [
    "Triton Error [CUDA]: device kernel image is invalid",
    "out of resource: shared memory, Required: 131072, Hardware limit: 101376.",
    "CUDA error: uncorrectable ECC error encountered",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "cusolver error: CUSOLVER_STATUS_EXECUTION_FAILED, when calling `cusolverDnCreate(handle)`",
    "cuFFT error: CUFFT_INTERNAL_ERROR",
    "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled system error",
    "No CUDA GPUs are available",
    "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
    "The NVIDIA driver on your system is too old (found version 11040).",
    "Internal Triton PTX codegen error: `ptxas` stderr: Value 'sm_101a' is not defined",
    "can't start new thread",
]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *((RuntimeError(message), "memory") for message in MEMORY_MESSAGES),
        *((RuntimeError(message), "device") for message in DEVICE_MESSAGES),
        (ValueError("bad letter\nand a trace"), "data"),
        (RuntimeError("shapes do not fit"), "data"),
        (MemoryError(), "memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "memory"),
        (torch.AcceleratorError("CUDA error: device-side assert triggered"), "device"),
        (OSError(errno.ENOSPC, "No space left on device"), "file"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
        (ArithmeticError("embedding of nccl_part_0-250 is not finite"), "data"),
        (KeyError("CUDA error"), "data"),
        (OutOfResources("out of resource: shared memory, Required: 131072"), "device"),
        (torch._dynamo.exc.TorchRuntimeError("a compiled block failed"), "device"),
        (torch._inductor.exc.CppCompileError(["c++"], "no such file"), "device"),
        (torch.distributed.DistBackendError("unhandled system error"), "device"),
        (AssertionError("Torch not compiled with CUDA enabled"), "device"),
        (AssertionError(), "data"),
        (MISSING_SYMBOL, "device"),
    ],
)
def test_errors_are_told_apart(error, kind):
    failure = describe_failure(error)
    assert (failure.kind, failure.error) == (kind, type(error).__name__)
    assert "\n" not in failure.message
    assert failure.message
