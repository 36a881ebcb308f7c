"""How far a stage is and what each worker does: in two lines and a row per worker, or in words.

All of it is told from events alone. A task that is begun again, after the death of a worker, takes
back what had been counted of it, so the numbers never exceed what there is to do.

Column widths are fixed, so that nothing jumps when a number grows; the bars take what is left.
Columns that a narrow terminal has no room for are left out, the least informative first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from virnucpro.contracts import Device
from virnucpro.devices import GpuReading
from virnucpro.events import (
    Event,
    Progressed,
    StageFinished,
    StageStarted,
    TaskFinished,
    TaskStarted,
    WorkerDied,
    WorkerReady,
)
from virnucpro.formatting import (
    clock_time,
    gibibytes,
    memory_size,
    percent,
    short_number,
)
from virnucpro.ui.log import worker_label

EARLIEST = 5.0  # seconds of work; before, no speed and no time is forecast
STALL_SECONDS = 600.0  # the first task of a CPU may rightly take hours, and is not warned of
SHORTEST_BAR, LONGEST_BAR = 8, 40  # characters
LONGEST_LABEL = 24  # characters of the name of a worker
NOTHING = StageStarted("", 0, 0, 0, title="", stages=0, on_workers=False)
STYLES = {"busy": "", "loading": "cyan", "idle": "dim", "dead": "bold red"}  # by state
COLUMNS = {  # titles and widths
    "tasks": 6,
    "sequences": 9,
    "part": 5,
    "seq/s": 7,
    "tok/s": 5,
    "memory": 12,
    "util": 5,
    "temp": 4,
    "power": 6,
}
LEAST_INFORMATIVE = ("power", "part", "temp", "tasks", "memory", "tok/s", "sequences", "util")

Clock = Callable[[], float]


@dataclass
class WorkerProgress:
    """What one worker, or the host, has done in the current stage."""

    device: Device
    began: float  # when its work began
    heard: float  # when it last told anything
    is_stalled: bool = False  # and people were warned
    state: Literal["loading", "idle", "busy", "dead"] = "loading"
    tasks: int = 0
    sequences: int = 0
    tokens: int = 0
    kept: tuple[int, int] = (0, 0)  # of the sequences and tokens, those of finished tasks

    def enter(self, state: Literal["idle", "busy", "dead"]) -> None:
        """Enter a state; what was done of an unfinished task is taken back."""
        self.state = state
        self.sequences, self.tokens = self.kept

    def speed(self, now: float) -> tuple[float, float]:
        """Return sequences and tokens per second in this stage; 0 while it is too early to tell."""
        seconds = now - self.began
        early = self.state == "loading" or seconds < EARLIEST
        return (0, 0) if early else (self.sequences / seconds, self.tokens / seconds)


class Dashboard:
    """The numbers of the current stage; ``clock`` gives seconds and never goes back.

    Attributes:
        workers: by number; in a stage of the host, it has the number 0.
        readings: what the drivers say of the workers' devices, by number.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.readings: dict[int, GpuReading] = {}
        self._devices: dict[int, Device] = {}
        self._speeds: dict[str, float] = {}  # sequences per second of stages that have ended
        self.begin(NOTHING)

    def begin(self, stage: StageStarted) -> None:
        """Begin a stage, or a step of a command, which has a title and no number."""
        self.stage, self.began, self.total = stage, self.clock(), stage.sequences
        self.tasks = self.failed = 0
        devices = self._devices if stage.on_workers else {0: Device("cpu")}
        self.workers = {
            n: WorkerProgress(device, self.began, self.began) for n, device in devices.items()
        }
        if not stage.on_workers:
            self.workers[0].enter("idle")

    def update(self, event: Event) -> None:
        """Take an event into account."""
        match event:
            case StageStarted():
                self.begin(event)
            case Progressed(number, sequences, tokens):
                worker = self._worker(number)
                worker.sequences += sequences
                worker.tokens += tokens
            case WorkerReady(number, device):
                self._devices[number] = device
                worker = self._worker(number)
                if worker.state == "loading":
                    worker.began = self.clock()
                worker.device = device
                worker.enter("idle")
            case TaskStarted(number):
                self._worker(number).enter("busy")
            case TaskFinished(number, _, _, failures):
                self.failed += sum(len(failed.ids) for failed in failures)
                worker = self._worker(number)
                worker.kept = worker.sequences, worker.tokens
                worker.tasks += 1
                self.tasks += 1
                worker.enter("idle")
            case WorkerDied(number):
                self._worker(number).enter("dead")
                self._devices.pop(number, None)
            case StageFinished(stage):
                self._speeds[stage] = self.speed[0]

    def _worker(self, number: int) -> WorkerProgress:
        """Return a worker that tells something."""
        now, device = self.clock(), self._devices.get(number, Device("cpu"))
        worker = self.workers.setdefault(number, WorkerProgress(device, now, now))
        worker.heard, worker.is_stalled = now, False
        return worker

    def stalls(self) -> list[str]:
        """Return a warning for each GPU that is silent for long, once until it moves again."""
        warnings = []
        for number, worker in self.workers.items():
            silence = self.clock() - worker.heard
            at_work = worker.device.kind == "cuda" and worker.state in ("busy", "loading")
            if at_work and silence >= STALL_SECONDS and not worker.is_stalled:
                worker.is_stalled = True
                name = worker_label(number, worker.device)
                warnings.append(f"{name} has made no progress for {clock_time(silence)}")
        return warnings

    @property
    def title(self) -> str:
        """Number and title of the stage: ``[4/9] Nucleotide embeddings (DNABERT-S)``."""
        stage = self.stage
        return f"[{stage.number}/{stage.stages}] {stage.title}" if stage.number else stage.title

    @property
    def sequences(self) -> int:
        """Number of sequences that are done or given up."""
        return self.failed + sum(worker.sequences for worker in self.workers.values())

    @property
    def speed(self) -> tuple[float, float]:
        """Sequences and tokens per second of all workers; 0 while it is too early to tell."""
        speeds = [worker.speed(self.clock()) for worker in self.workers.values()]
        return sum(speed for speed, _ in speeds), sum(speed for _, speed in speeds)

    @property
    def share(self) -> float | None:
        """Share of the stage that is done, 0 to 1, by sequences or tasks, as known."""
        if self.total:
            return min(1.0, self.sequences / self.total)
        return min(1.0, self.tasks / self.stage.todo) if self.stage.todo > 1 else None

    @property
    def time(self) -> str:
        """The time to the end of the command, at the speed of this stage, or that since its start.

        An embedding stage that is still to come counts with as many sequences as this one, at the
        speed that a stage of that name had before in this command. Where there was none, the time
        leaves it out and says so.
        """
        speed, least = self.speed[0], ""
        if not (speed and self.total):
            return f"{clock_time(self.clock() - self.began)} so far"
        seconds = max(0, self.total - self.sequences) / speed
        for stage in self.stage.ahead:
            if self.stage.on_workers and self._speeds.get(stage):
                seconds += self.total / self._speeds[stage]
            else:
                least = "at least "
        return f"{least}{clock_time(seconds)} left"

    @property
    def heading(self) -> list[str]:
        """The stage, its files or tasks, the time, and failures, as separate texts."""
        parts = [self.title]
        if (todo := self.stage.todo) > 1:
            parts.append(f"{self.tasks:,} of {todo:,} {'files' if self._is_shown else 'tasks'}")
        parts.append(self.time)
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        return parts

    @property
    def counts(self) -> str:
        """``134,222 of 1,200,000 seq  1,692/s  489k tok/s``, of a width that hardly changes."""
        expected, text = f"{self.total:,}", f"{self.sequences:,}"
        if self.total:
            text = f"{text:>{len(expected)}} of {expected}"
        speed, tokens = self.speed
        text += " seq" if self._is_shown else ""
        text += f"  {short_number(speed):>5}/s" if speed else ""
        return text + (f" {short_number(tokens):>5} tok/s" if tokens else "")

    @property
    def _is_shown(self) -> bool:
        """Whether there is a row per worker."""
        return self.stage.on_workers and bool(self.workers)

    def picture(self, width: int) -> Group:
        """Return the dashboard in lines of at most ``width``; nothing before the first stage.

        A step without a number, which has no workers, is a single line.
        """
        if not self.stage.title:
            return Group()
        share = self.share
        numbers = self.counts if share is None else f"{percent(share, 1):>7}  {self.counts}"
        if not self.stage.number:
            return Group(bar_line(self.title, share, f"{percent(share)}, {self.time}", width))
        heading = Text(no_wrap=True, overflow="crop")
        for number, part in enumerate(self.heading):
            style = "bold" if number == 0 else "bold red" if part.endswith(" failed") else ""
            heading.append("  " if number else "").append(part, style)
        lines: list[RenderableType] = [heading, bar_line("", share, numbers, width)]
        if self._is_shown:
            lines += [Text(), self._table(width)]
        return Group(*lines)

    def line_parts(self) -> list[str]:
        """Return the same in words: the stage, each worker; empty before a stage."""
        share = percent(self.share, 1)
        if not self.stage.number:
            return [f"{self.title}: {percent(self.share)}, {self.time}"] if self.title else []
        parts = [", ".join(self.heading), f"{' '.join(self.counts.split())} ({share})"]
        for label, row in self._rows().items():
            numbers = (f"{title} {row[title]}" for title in COLUMNS if row.get(title))
            parts.append(f"{label}: {', '.join(numbers)}")
        return parts

    def _rows(self) -> dict[str, dict[str, str]]:
        """Return the numbers of each worker by the titles of the columns, its state, and its bar.

        The longest bar is as far as the whole stage.
        """
        workers = self.workers if self._is_shown else {}
        most = max((worker.sequences for worker in workers.values()), default=0) or 1
        rows = {}
        for number, worker in sorted(workers.items()):
            speed, tokens = worker.speed(self.clock())
            is_busy = worker.state == "busy"
            row = {
                "state": worker.state,
                "bar": str((self.share or 0) * worker.sequences / most),
                "tasks": short_number(worker.tasks),
                "sequences": f"{worker.sequences:,}",
                "part": percent(worker.sequences / (max(self.sequences - self.failed, 1))),
                "seq/s": short_number(speed) if is_busy else worker.state,
                "tok/s": short_number(tokens) if is_busy else "",
            }
            used, total, util, temp, power = self.readings.get(number, (None,) * 5)
            if used is not None:
                row["memory"] = f"{gibibytes(used)}/{memory_size(total)}"
            if util is not None:
                row["util"] = percent(util / 100)
            for title, value, unit in (("temp", temp, "C"), ("power", power, "W")):
                if value is not None:
                    row[title] = f"{value:.0f} {unit}"
            rows[worker_label(number, worker.device)] = row
        return rows

    def _table(self, width: int) -> Table:
        """Return the table of workers."""
        rows = self._rows()
        known = {title for row in rows.values() for title in row}
        columns = {title: wide for title, wide in COLUMNS.items() if title in known}
        label_width = min(max(map(len, rows)), LONGEST_LABEL, max(6, width - 9))
        room = width - label_width - 1 - sum(wide + 1 for wide in columns.values())
        for title in LEAST_INFORMATIVE:
            if room < SHORTEST_BAR and title in columns:
                room += columns.pop(title) + 1
        bar = min(room, LONGEST_BAR) if room >= SHORTEST_BAR else 0
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
        for title, wide in (("", label_width), *([("", bar)] if bar else []), *columns.items()):
            side: Literal["left", "right"] = "right" if title else "left"
            table.add_column(title, width=wide, no_wrap=True, overflow="crop", justify=side)
        for label, row in rows.items():
            cells: list[RenderableType] = [Text(label)]
            if bar:
                cells.append(ProgressBar(1.0, float(row["bar"]), bar, complete_style="cyan"))
            cells += [Text(row.get(title, "")) for title in columns]
            table.add_row(*cells, style=STYLES[row["state"]])
        return table


def bar_line(title: str, share: float | None, numbers: str, width: int) -> RenderableType:
    """Return one line: a title, numbers, and between them a bar where there is room for it."""
    room = width - len(title) - len(numbers) - 4
    if share is None or room < SHORTEST_BAR:
        return Text(f"{title}  {numbers}".strip(), no_wrap=True, overflow="crop")
    table = Table.grid(padding=(0, 2, 0, 0))
    bar = ProgressBar(1.0, share, width=room, complete_style="green", finished_style="green")
    table.add_row(*([Text(title)] if title else []), bar, Text(numbers))
    return table
