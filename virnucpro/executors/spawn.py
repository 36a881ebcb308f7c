"""Worker processes, one a device, for the whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from virnucpro.contracts import Device, Stage, Task, TaskOutcome
from virnucpro.events import Event
from virnucpro.executors.crew import Crew, Limits
from virnucpro.executors.local import run_on_host
from virnucpro.executors.shift import Shift
from virnucpro.executors.signals import Interruption

Emit = Callable[[Event], None]


class SpawnExecutor:
    """One spawn worker a device; stages of the host run in the parent."""

    def __init__(
        self,
        devices: Sequence[Device],
        tokenizer_threads: int,
        interruption: Interruption | None = None,
        limits: Limits | None = None,
        threads: int | None = None,
    ) -> None:
        """``interruption`` is what catches the signals, if anything does.

        ``threads`` are those of the host's own stages; None takes what the workers have in all.
        """
        self._crew = Crew(devices, tokenizer_threads)
        self._threads = threads or sum(device.threads for device in devices)
        self._interruption = interruption or Interruption()
        self._limits = limits or Limits()

    def run(self, stage: Stage, tasks: Iterable[Task], emit: Emit) -> Iterator[TaskOutcome]:
        """Carry out ``tasks`` on the workers; outcomes come in order of completion.

        Before any of these errors is raised, tasks in flight have had the time to finish, and
        their outcomes were yielded.

        Raises:
            Interrupted: a signal arrived.
            DeviceError: no device is left, or nothing that is tried on them ends well.
            VirNucProError: what a worker met that concerns the whole run.
        """
        if stage.kind == "cpu":
            yield from run_on_host(stage, tasks, emit, self._threads)
            return
        todo = list(tasks)
        if not todo:
            return
        with self._interruption.held():
            self._crew.grow(len(todo))
            shift = Shift(stage, todo, self._crew, self._limits, self._interruption, emit)
            yield from shift.outcomes()

    def close(self) -> None:
        """Stop the workers; the busy ones are killed.

        Raises:
            Interrupted: a first signal arrived meanwhile; the workers are gone all the same.
        """
        with self._interruption.held():
            self._crew.close()
