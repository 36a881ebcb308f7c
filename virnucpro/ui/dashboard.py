"""The dashboard of a run: the stage on two lines, below it one line per GPU; the same in words.

With many workers on several nodes of a cluster, there is one line per node.

Column widths are fixed, so that nothing jumps when a number grows; the bars take what is left.
Columns that a narrow terminal has no room for are left out, the least informative first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from virnucpro.contracts import Device
from virnucpro.devices import GpuReading, read_gpu
from virnucpro.events import Event, Notice, SequencesFailed, StageFinished
from virnucpro.formatting import (
    clock_time,
    gibibytes,
    memory_size,
    percent,
    printable,
    short_number,
)
from virnucpro.layout import Layout, SamplesFolder
from virnucpro.settings import DisplaySettings
from virnucpro.ui.log import LogFile, worker_label
from virnucpro.ui.progress import Clock, StageProgress, WorkerProgress, added, worker_warnings
from virnucpro.ui.terminal import LINE_SECONDS, SHORTEST_BAR, ProgressScreen, bar_line

LONGEST_BAR = 40  # characters
ROOMY = 100  # width from which two blanks separate the columns
SHORTEST_LABEL, LONGEST_LABEL = 6, 24  # characters of the name of a worker or a node
MANY_WORKERS = 8  # with more of them on several nodes, there is a row per node
SPEED_WIDTH = 7  # of the one column that every terminal shows
STYLES = {"busy": "", "loading": "cyan", "idle": "dim", "dead": "bold red"}
"""The states of a worker; a node is in the first state of this list that one of its workers is."""
# Title, width, and the width of the narrowest terminal that shows the column.
COLUMNS = (
    ("busy", 7, 40),
    ("tasks", 6, 66),
    ("sequences", 9, 50),
    ("part", 5, 76),
    ("seq/s", SPEED_WIDTH, 0),
    ("tok/s", 5, 58),
    ("memory", 12, 62),
    ("util", 5, 40),
    ("temp", 4, 72),
    ("power", 6, 110),
    ("now", 34, 134),
)


class RunScreen(ProgressScreen):
    """Shows the events of a run on standard error and writes them to the log of the run."""

    def __init__(
        self,
        display: DisplaySettings,
        layout: Layout | SamplesFolder,
        console: Console | None = None,
        read: Callable[[Device], GpuReading | None] = read_gpu,
        clock: Clock = time.monotonic,
    ) -> None:
        """Log to the file that the user named, or to that of the run."""
        automatic = layout.log if display.auto_log else None
        super().__init__(display, console, clock, LogFile(display.log_file or automatic))
        self._read = read
        self.progress = StageProgress(clock)
        self.readings: dict[int, GpuReading] = {}  # by number of the worker

    def show(self, event: Event) -> None:
        """Show an event; OutputError where the log file cannot be written."""
        self.draw()
        if isinstance(event, Notice):
            self.notice(event)
            return
        text = self.log.event(event)
        with self.lock:
            self.progress.update(event)
        if isinstance(event, SequencesFailed):
            self.say(f"warning: {text}", "yellow", always=True)
        elif text and self.verbose:
            self.say(text, "dim")
        elif isinstance(event, StageFinished) and event.seconds >= LINE_SECONDS:
            self.say(f"{self.progress.title} took {clock_time(event.seconds)}")

    def check(self) -> list[str]:
        """Read the GPUs, and return warnings about workers."""
        with self.lock:
            devices = {worker.number: worker.device for worker in self.progress.workers}
        readings = {number: self._read(device) for number, device in devices.items()}
        with self.lock:
            self.readings = {number: r for number, r in readings.items() if r}
            return worker_warnings(self.progress.workers, self.clock())

    @property
    def heading(self) -> list[str]:
        """The stage, its files or tasks, the time, and failures, as separate texts."""
        progress = self.progress
        parts = [progress.title]
        if (todo := progress.stage.todo) > 1:
            unit = "files" if progress.encoding else "tasks"
            parts.append(f"{min(progress.tasks_done, todo):,} of {todo:,} {unit}")
        if progress.encoding and all(w.state == "loading" for w in progress.workers):
            parts.append("loading the model")
        seconds, complete = progress.run_remaining
        if seconds is None:
            parts.append(f"{clock_time(self.clock() - progress.started)} so far")
            if progress.share == 1 and progress.stage.number == progress.stage.stages:
                parts.append("writing the report and the last files")
        else:
            parts.append(f"{'' if complete else 'at least '}{clock_time(seconds)} left")
        if progress.failed:
            parts.append(f"{progress.failed:,} failed")
        return parts

    @property
    def counts(self) -> str:
        """``134,222 of 1,200,000 seq  1,692/s  489k tok/s``, of a width that hardly changes."""
        progress, work = self.progress, self.progress.per_second
        expected, text = f"{progress.stage.sequences:,}", f"{progress.sequences:,}"
        if progress.stage.sequences:
            text = f"{text:>{len(expected)}} of {expected}"
        text += " seq" if progress.encoding else ""
        if work is None:
            return text
        speed = f"{text}  {short_number(work.sequences):>5}/s"
        return speed + (f" {short_number(work.tokens):>5} tok/s" if progress.encoding else "")

    def picture(self, width: int) -> Group:
        """Return the dashboard in lines of at most ``width``; nothing before the first stage."""
        progress = self.progress
        if not progress.stage.number:
            return Group()
        heading = Text(no_wrap=True, overflow="crop")
        for number, part in enumerate(self.heading):
            style = "bold" if number == 0 else "bold red" if part.endswith(" failed") else ""
            heading.append("  " if number else "").append(part, style)
        share = progress.share
        figures = self.counts if share is None else f"{percent(share, 1):>7}  {self.counts}"
        lines: list[RenderableType] = [heading, bar_line("", share, figures, width)]
        if progress.workers:
            lines += [Text(), self._table(width)]
        return Group(*lines)

    def line_parts(self) -> list[str]:
        """Return the same in words: the stage, each worker or node; empty before a stage."""
        progress = self.progress
        if not progress.stage.number:
            return []
        share = "" if progress.share is None else f" ({percent(progress.share, 1)})"
        parts = [", ".join(self.heading), f"{' '.join(self.counts.split())}{share}"]
        for label, workers in self._groups().items():
            row = self._row(workers)
            figures = (f"{title} {row[title]}" for title, *_ in COLUMNS if row.get(title))
            parts.append(f"{label}: {', '.join(figures)}")
        return parts

    def _groups(self) -> dict[str, list[WorkerProgress]]:
        """Return the workers of each row by its name: one, or all of a node if they are many."""
        workers, groups = self.progress.workers, dict[str, list[WorkerProgress]]()
        hosts = {worker.device.host for worker in workers}
        if len(workers) <= MANY_WORKERS or len(hosts) < 2:
            return {worker_label(worker.number, worker.device): [worker] for worker in workers}
        for worker in sorted(workers, key=lambda worker: worker.device.host):
            groups.setdefault(worker.device.host, []).append(worker)
        return groups

    def _row(self, workers: Sequence[WorkerProgress]) -> dict[str, str]:
        """Return the figures of a row by the titles of the columns, and its state."""
        progress, now, worker = self.progress, self.clock(), workers[0]
        states = {worker.state_shown(now) for worker in workers}
        state = next(state for state in STYLES if state in states)
        busy = [worker for worker in workers if worker.state_shown(now) == "busy"]
        work = added(worker.per_second(now) for worker in busy)
        sequences = sum(worker.sequences for worker in workers)
        row = {
            "state": state,
            "tasks": short_number(sum(worker.tasks for worker in workers)),
            "sequences": f"{sequences:,}" if sequences < 10_000_000 else short_number(sequences),
            "part": percent(sequences / max(progress.sequences - progress.failed, 1)),
            "seq/s": short_number(work.sequences) if work else "" if state == "busy" else state,
            "tok/s": short_number(work.tokens) if work else "",
        }
        if len(workers) > 1:
            return row | {"busy": f"{len(busy)}/{len(workers)}"}
        if worker.task is not None:
            row["now"] = f"{clock_time(now - worker.since)} {printable(worker.task.name)}"
        used, total, util, temp, power = self.readings.get(worker.number, (None,) * 5)
        if used is not None:
            row["memory"] = f"{gibibytes(used)}/{memory_size(total)}"
        if util is not None:
            row["util"] = percent(util / 100)
        for title, value, unit in (("temp", temp, "C"), ("power", power, "W")):
            if value is not None:
                row[title] = f"{value:.0f} {unit}"
        return row

    def _table(self, width: int) -> Table:
        """Return the table of workers or nodes. The longest bar is as far as the whole stage is."""
        groups = self._groups()
        rows = {label: self._row(workers) for label, workers in groups.items()}
        longest = min(LONGEST_LABEL, width - SPEED_WIDTH - 2, max(map(len, groups)))
        label_width = max(SHORTEST_LABEL, longest)
        left = width - (label_width - SHORTEST_LABEL)  # long labels take the room of columns
        known = {title for row in rows.values() for title in row}
        columns = [(title, w) for title, w, least in COLUMNS if title in known and least <= left]
        gap = 2 if width >= ROOMY else 1
        room = width - sum(wide + gap for _, wide in columns) - label_width - gap
        room = min(room, LONGEST_BAR) if room >= SHORTEST_BAR else 0
        table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
        for title, wide in (("", label_width), *([("", room)] if room else []), *columns):
            side: Literal["left", "right"] = "left" if title in ("", "now") else "right"
            table.add_column(title, width=wide, no_wrap=True, overflow="crop", justify=side)
        done = {label: sum(w.sequences for w in workers) for label, workers in groups.items()}
        most = max(1, *done.values())
        for label, row in rows.items():
            cells: list[RenderableType] = [Text(label)]
            if room:
                share = (self.progress.share or 0) * done[label] / most
                cells.append(ProgressBar(1.0, share, width=room, complete_style="cyan"))
            cells += [Text(row.get(title, "")) for title, _ in columns]
            table.add_row(*cells, style=STYLES[row["state"]])
        return table
