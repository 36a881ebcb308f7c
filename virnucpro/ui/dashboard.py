"""The dashboard of a run: the stage on two lines, below it one line per GPU; the same in words.

With many workers on several nodes of a cluster, there is one line per node.

Column widths are fixed, so that nothing jumps when a number grows; the bars take what is left.
Columns that a narrow terminal has no room for are left out, the least informative first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from virnucpro.formatting import (
    UNKNOWN,
    clock_time,
    counted,
    gibibytes,
    memory_size,
    percent,
    rate_text,
    short_number,
)
from virnucpro.ui.labels import worker_label
from virnucpro.ui.nodes import NodeProgress, nodes_shown
from virnucpro.ui.readings import GpuReading, HostReading
from virnucpro.ui.stage_progress import StageProgress, WorkerProgress
from virnucpro.ui.terminal import SHORTEST_BAR, bar, bar_line, cropped

LONGEST_BAR = 40  # characters
ROOMY = 100  # width from which two blanks separate the columns
SHORTEST_LABEL, LONGEST_LABEL = 6, 24  # characters of the name of a worker or a node
SPEED_WIDTH = 7  # of the one column that every terminal shows
STYLES = {"busy": "", "idle": "dim", "loading": "cyan", "dead": "bold red"}

Row = WorkerProgress | NodeProgress
AnyRow = TypeVar("AnyRow", bound=Row, contravariant=True)


@dataclass(frozen=True)
class Dashboard:
    """All that is shown at one moment. ``readings`` are by number of the worker."""

    progress: StageProgress
    readings: Mapping[int, GpuReading] = field(default_factory=dict)
    host: HostReading | None = None

    def reading(self, worker: WorkerProgress) -> GpuReading:
        """Return the reading of a worker's device; all values are None where there is none."""
        return self.readings.get(worker.number, GpuReading())

    @property
    def heading(self) -> list[str]:
        """The stage, its files or tasks, the time, and failures, as separate texts."""
        progress = self.progress
        parts = [progress.title]
        if progress.tasks > 1:
            unit = "files" if progress.encoding else "tasks"
            tasks_done = min(progress.tasks_done, progress.tasks)
            parts.append(f"{tasks_done:,} of {progress.tasks:,} {unit}")
        if progress.encoding and all(w.state == "loading" for w in progress.workers):
            parts.append("loading the model")
        if (remaining := progress.run_remaining) is not None:
            seconds, complete = remaining
            parts.append(f"{'' if complete else 'at least '}{clock_time(seconds)} left")
        else:
            parts.append(f"{clock_time(progress.elapsed)} so far")
        if progress.failed:
            parts.append(f"{progress.failed:,} failed")
        return parts

    @property
    def counts(self) -> str:
        """``134,222 of 1,200,000 seq  1,692/s  489k tok/s``, of a width that hardly changes."""
        progress = self.progress
        expected = f"{progress.expected:,}"
        done = f"{progress.sequences:,}"
        text = f"{done:>{len(expected)}} of {expected}" if progress.expected else f"{done:>9}"
        work = progress.per_second
        speed = f"{short_number(work.sequences) if work else UNKNOWN:>5}/s"
        if progress.encoding:
            text += " seq"
            speed += f" {short_number(work.tokens) if work else UNKNOWN:>5} tok/s"
        return f"{text}  {speed}"

    def picture(self, width: int, *, ascii_only: bool = False) -> Group:
        """Return the dashboard in lines of at most ``width``; nothing before the first stage."""
        if not self.progress.number:
            return Group()
        heading = Text()
        for number, part in enumerate(self.heading):
            style = "bold" if number == 0 else "bold red" if part.endswith(" failed") else ""
            heading.append("  " if number else "").append(part, style)
        if (share := self.progress.share) is None:
            summary = cropped(Text(self.counts.strip()), width, ascii_only=ascii_only)
        else:
            figures = f"  {percent(share, 1):>7}  {self.counts}"
            summary = bar_line("", share, figures, width, ascii_only=ascii_only)
        lines: list[RenderableType] = [cropped(heading, width, ascii_only=ascii_only), summary]
        if self.progress.workers:
            lines += [Text(), row_table(self, width, ascii_only=ascii_only)]
        if self.host is not None:
            text = Text(host_text(self.host), style="dim")
            lines.append(cropped(text, width, ascii_only=ascii_only))
        return Group(*lines)

    def line_parts(self) -> list[str]:
        """Return the same in words: the stage, each worker, the host; empty before a stage."""
        progress = self.progress
        if not progress.number:
            return []
        share = "" if progress.share is None else f" ({percent(progress.share, 1)})"
        parts = [", ".join(self.heading), f"{' '.join(self.counts.split())}{share}"]
        nodes = nodes_shown(progress.workers)
        for node in nodes:
            parts.append(f"{node.host} {_workers(self, node)} workers {self._work_in_words(node)}")
        for worker in [] if nodes else progress.workers:
            reading = self.reading(worker)
            figures = (
                worker_label(worker.number, worker.device),
                self._work_in_words(worker),
                memory_text(reading),
                measured(reading.utilisation, " %"),
                measured(reading.temperature, " C"),
                measured(reading.power, " W"),
            )
            parts.append(" ".join(figure for figure in figures if figure))
        if self.host is not None:
            parts.append(host_text(self.host))
        return parts

    def _work_in_words(self, row: Row) -> str:
        """Return what a worker or a node has done: ``11 tasks 12,000 (50 %) 200/s 32.0k tok/s``."""
        state = _speed(self, row)
        if work := row.busy_rate(self.progress.now):
            state = f"{rate_text(work.sequences)} {rate_text(work.tokens, 'tok')}"
        part = percent(self.progress.part(row.sequences))
        return f"{counted(row.tasks, 'task')} {row.sequences:,} ({part}) {state}".strip()


@dataclass(frozen=True)
class RowColumn(Generic[AnyRow]):
    """A figure of each row; ``least`` is the width of the narrowest terminal that shows it."""

    title: str
    width: int
    least: int
    text: Callable[[Dashboard, AnyRow], str]
    justify: Literal["left", "right"] = "right"


def _speed(board: Dashboard, row: Row) -> str:
    if work := row.busy_rate(board.progress.now):
        return short_number(work.sequences)
    state = row.state_shown(board.progress.now)
    return "" if state == "busy" else state


def _tokens(board: Dashboard, row: Row) -> str:
    work = row.busy_rate(board.progress.now)
    return short_number(work.tokens) if work else ""


def _sequences(board: Dashboard, row: Row) -> str:
    text = f"{row.sequences:,}"
    return text if len(text) <= 9 else short_number(row.sequences)


def _workers(board: Dashboard, node: NodeProgress) -> str:
    return f"{node.busy_workers(board.progress.now)}/{len(node.workers)}"


def _task(board: Dashboard, worker: WorkerProgress) -> str:
    if worker.task is None:
        return ""
    return f"{clock_time(board.progress.now - worker.since)} {worker.task.name}"


WORK_COLUMNS: tuple[RowColumn[Row], ...] = (
    RowColumn("tasks", 6, 66, lambda board, row: short_number(row.tasks)),
    RowColumn("sequences", 9, 50, _sequences),
    RowColumn("part", 5, 76, lambda board, row: percent(board.progress.part(row.sequences))),
    RowColumn("seq/s", SPEED_WIDTH, 0, _speed),
    RowColumn("tok/s", 5, 58, _tokens),
)
GPU_COLUMNS: tuple[RowColumn[WorkerProgress], ...] = (
    RowColumn("memory", 10, 62, lambda board, w: memory_text(board.reading(w))),
    RowColumn("util", 5, 40, lambda board, w: measured(board.reading(w).utilisation, " %")),
    RowColumn("temp", 4, 72, lambda board, w: measured(board.reading(w).temperature, "°C")),
    RowColumn("power", 6, 110, lambda board, w: measured(board.reading(w).power, " W")),
)
TASK_COLUMN: RowColumn[WorkerProgress] = RowColumn("now", 34, 134, _task, "left")
NODE_COLUMN: RowColumn[NodeProgress] = RowColumn("busy", 7, 40, _workers)


def row_table(board: Dashboard, width: int, *, ascii_only: bool) -> Table:
    """Return the table of the workers, or that of the nodes where workers are many."""
    workers = board.progress.workers
    if nodes := nodes_shown(workers):
        labels = [node.host for node in nodes]
        of_nodes: list[RowColumn[NodeProgress]] = [NODE_COLUMN, *WORK_COLUMNS]
        return _table(board, nodes, labels, of_nodes, width, ascii_only=ascii_only)
    labels = [worker_label(worker.number, worker.device) for worker in workers]
    columns: list[RowColumn[WorkerProgress]] = [*WORK_COLUMNS]
    columns += [*(GPU_COLUMNS if board.readings else ()), TASK_COLUMN]
    return _table(board, workers, labels, columns, width, ascii_only=ascii_only)


def _table(
    board: Dashboard,
    rows: Sequence[AnyRow],
    labels: Sequence[str],
    candidates: Sequence[RowColumn[AnyRow]],
    width: int,
    *,
    ascii_only: bool,
) -> Table:
    """Return a table of rows. The longest bar is as far as the whole stage is."""
    widest = max(SHORTEST_LABEL, min(LONGEST_LABEL, width - SPEED_WIDTH - 2))
    label_width = min(widest, max(SHORTEST_LABEL, *map(len, labels)))
    left = width - (label_width - SHORTEST_LABEL)  # long labels take the room of columns
    columns = [column for column in candidates if column.least == 0 or column.least <= left]
    gap = 2 if width >= ROOMY else 1
    room = width - sum(column.width + gap for column in columns) - label_width - gap
    room = min(room, LONGEST_BAR) if room >= SHORTEST_BAR else 0
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", width=label_width, no_wrap=True)
    if room:
        table.add_column("", width=room, no_wrap=True)
    for column in columns:
        table.add_column(column.title, justify=column.justify, width=column.width, no_wrap=True)
    progress = board.progress
    most = max((row.sequences for row in rows), default=0)
    for label, row in zip(labels, rows, strict=True):
        style = STYLES[row.state_shown(progress.now)]
        texts = [label, *(column.text(board, row) for column in columns)]
        cells = [_cell(text, style, ascii_only) for text in texts]
        if room:
            share = (progress.share or 0) * row.sequences / max(most, 1)
            cells.insert(1, bar(share, room, "cyan", ascii_only=ascii_only))
        table.add_row(*cells)
    return table


def _cell(text: str, style: str, ascii_only: bool) -> Text:
    if ascii_only:
        text = text.replace("°C", "C").encode("ascii", "backslashreplace").decode()
    return Text(text, style=style, overflow="crop" if ascii_only else "ellipsis")


def memory_text(reading: GpuReading) -> str:
    """Return used and total memory: ``34/151 GiB``; empty where it is not known."""
    if reading.memory_used is None:
        return ""
    if reading.memory_total is None:
        return memory_size(reading.memory_used)
    return f"{gibibytes(reading.memory_used)}/{memory_size(reading.memory_total)}"


def measured(value: float | None, unit: str) -> str:
    """Return a measured value with its unit: ``61 °C``; empty where it is not known."""
    return "" if value is None else f"{value:.0f}{unit}"


def host_text(host: HostReading) -> str:
    """Return memory and load of the host: ``host 2.1 GiB, load 3.4``."""
    load = "" if host.load is None else f", load {host.load:.1f}"
    return f"host {memory_size(host.memory)}{load}"
