"""The table that is redrawn: the stage on two lines, below it a line a GPU.

Column widths are fixed, so that nothing jumps when a number grows; the bars take what is left.
Columns that a narrow terminal has no room for are left out, the least telling first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from virnucpro.formatting import clock_time, short_number
from virnucpro.ui.figures import Figures, amount, host_text, memory
from virnucpro.ui.meter import Worker
from virnucpro.ui.words import label, piece

SHORTEST_BAR, LONGEST_BAR = 6, 40
ROOMY = 100  # columns from which on two blanks separate figures
STYLES = {"busy": "", "idle": "dim", "loading": "cyan", "dead": "bold red"}


@dataclass(frozen=True)
class Column:
    """A figure of a worker. ``least`` is the narrowest terminal that shows it."""

    title: str
    width: int
    least: int
    text: Callable[[Figures, Worker], str]
    justify: Literal["left", "right"] = "right"


def _speed(figures: Figures, worker: Worker) -> str:
    state = worker.shown(figures.meter.now)
    if state != "busy":
        return state
    pace = worker.rate.pace(figures.meter.now)
    return short_number(pace.sequences) if pace else ""


def _tokens(figures: Figures, worker: Worker) -> str:
    now = figures.meter.now
    pace = worker.rate.pace(now) if worker.shown(now) == "busy" else None
    return short_number(pace.tokens) if pace else ""


def _count(figures: Figures, worker: Worker) -> str:
    text = f"{worker.sequences:,}"
    return text if len(text) <= 9 else short_number(worker.sequences)


def _task(figures: Figures, worker: Worker) -> str:
    if worker.task is None:
        return ""
    return f"{clock_time(figures.meter.now - worker.since)} {piece(worker.task)}"


COLUMNS = (
    Column("", 6, 0, lambda f, w: label(w.number, w.device), "left"),
    Column("pieces", 6, 66, lambda f, w: short_number(w.tasks)),
    Column("sequences", 9, 50, _count),
    Column("part", 4, 76, lambda f, w: f"{100 * f.meter.part(w):.0f}%"),
    Column("seq/s", 7, 0, _speed),
    Column("tok/s", 5, 58, _tokens),
)
GAUGES = (
    Column("memory", 10, 62, lambda f, w: memory(f.reading(w))),
    Column("util", 4, 40, lambda f, w: amount(f.reading(w).utilisation, "%")),
    Column("temp", 4, 72, lambda f, w: amount(f.reading(w).temperature, "°C")),
    Column("power", 6, 110, lambda f, w: amount(f.reading(w).power, " W")),
)
TASK = Column("now", 34, 134, _task, "left")


def bar(share: float, width: int, style: str, *, ascii_only: bool) -> Text:
    """``share`` (0 to 1) of ``width`` cells; it can be read without colours too."""
    full, half, rest = ("#", "#", "-") if ascii_only else ("━", "╸", "─")
    halves = min(2 * width, int(2 * share * width + 1e-9))
    if share > 0:
        halves = max(1, halves)
    done = full * (halves // 2) + half * (halves % 2)
    return Text.assemble((done, style), (rest * (width - len(done)), "dim"))


def heading(figures: Figures, width: int, *, ascii_only: bool) -> Text:
    """The first line."""
    text = Text()
    for number, part in enumerate(figures.heading):
        style = "bold" if number == 0 else "bold red" if part.endswith(" failed") else ""
        text.append("  " if number else "").append(part, style)
    return _cropped(text, width, ascii_only)


def progress(figures: Figures, width: int, *, ascii_only: bool) -> Text:
    """The second line: bar and counts of the whole stage."""
    share, counts = figures.meter.share, figures.counts
    if share is None:
        return _cropped(Text(counts.strip()), width, ascii_only)
    words = f"  {100 * share:5.1f}%  {counts}"
    room = width - len(words)
    if room < SHORTEST_BAR:
        return _cropped(Text(words.strip()), width, ascii_only)
    return bar(share, room, "green", ascii_only=ascii_only) + Text(words)


def _cropped(text: Text, width: int, ascii_only: bool) -> Text:
    text.no_wrap = True
    text.truncate(width, overflow="crop" if ascii_only else "ellipsis")
    return text


def columns(figures: Figures, width: int) -> list[Column]:
    """Those that a terminal of ``width`` has room for and that have anything to show."""
    wanted: Sequence[Column] = (*COLUMNS, *(GAUGES if figures.readings else ()), TASK)
    return [column for column in wanted if column.least <= width]


def workers(figures: Figures, width: int, *, ascii_only: bool) -> Table:
    """The table of the workers. The longest bar is as far as the whole stage is."""
    shown = columns(figures, width)
    gap = 2 if width >= ROOMY else 1
    room = width - sum(column.width + gap for column in shown)
    room = min(room, LONGEST_BAR) if room >= SHORTEST_BAR else 0
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    for number, column in enumerate(shown):
        table.add_column(column.title, justify=column.justify, width=column.width, no_wrap=True)
        if number == 0 and room:
            table.add_column("", width=room, no_wrap=True)
    most = max((worker.sequences for worker in figures.meter.workers), default=0)
    for worker in figures.meter.workers:
        style = STYLES[worker.shown(figures.meter.now)]
        cells = [_cell(column.text(figures, worker), style, ascii_only) for column in shown]
        if room:
            share = (figures.meter.share or 0) * worker.sequences / max(most, 1)
            cells.insert(1, bar(share, room, "cyan", ascii_only=ascii_only))
        table.add_row(*cells)
    return table


def _cell(text: str, style: str, ascii_only: bool) -> Text:
    if ascii_only:
        text = text.replace("°C", "C").encode("ascii", "backslashreplace").decode()
    return Text(text, style=style, overflow="crop" if ascii_only else "ellipsis")


def frame(figures: Figures, width: int, *, ascii_only: bool = False) -> Group:
    """One picture of the dashboard, in lines of at most ``width``; nothing before a stage."""
    if not figures.meter.number:
        return Group()
    lines: list[RenderableType] = [
        heading(figures, width, ascii_only=ascii_only),
        progress(figures, width, ascii_only=ascii_only),
    ]
    if figures.meter.workers:
        lines += [Text(), workers(figures, width, ascii_only=ascii_only)]
    if figures.host is not None:
        lines.append(_cropped(Text(host_text(figures.host), style="dim"), width, ascii_only))
    return Group(*lines)
