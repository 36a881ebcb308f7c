"""What is shown at one moment: the meter and the readings of every device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from virnucpro.formatting import (
    clock_time,
    counted,
    gibibytes,
    memory_size,
    percent,
    rate_text,
    short_number,
)
from virnucpro.ui.host import HostReading
from virnucpro.ui.meter import Meter, Worker
from virnucpro.ui.nvml import Reading
from virnucpro.ui.words import label


@dataclass(frozen=True)
class Figures:
    """``readings`` are by worker."""

    meter: Meter
    readings: Mapping[int, Reading] = field(default_factory=dict)
    host: HostReading | None = None

    def reading(self, worker: Worker) -> Reading:
        """Of a worker's device; all None where there is none."""
        return self.readings.get(worker.number, Reading())

    @property
    def heading(self) -> list[str]:
        """Stage, files or pieces of one, time, failures: the most important first but the last."""
        meter = self.meter
        parts = [meter.title]
        if meter.files > 1:
            parts.append(f"{meter.files_done:,} of {meter.files:,} files")
        elif meter.pieces > 1:
            done = min(meter.pieces_done, meter.pieces)
            parts.append(f"{done:,} of {meter.pieces:,} pieces")
        if meter.encoding and all(worker.state == "loading" for worker in meter.workers):
            parts.append("loading the model")
        if (left := meter.remaining) is not None:
            parts.append(f"{clock_time(left)} left")
        else:
            parts.append(f"{clock_time(meter.elapsed)} so far")
        if meter.failed:
            parts.append(f"{meter.failed:,} failed")
        return parts

    @property
    def counts(self) -> str:
        """``134,222 of 1,200,000 seq  1,692/s  489k tok/s``, of a width that hardly changes."""
        meter = self.meter
        whole = f"{meter.expected:,}"
        done = f"{meter.sequences:,}"
        counted = f"{done:>{len(whole)}} of {whole}" if meter.expected else f"{done:>9}"
        pace = meter.pace
        speed = f"{short_number(pace.sequences) if pace else '-':>5}/s"
        if meter.encoding:
            counted += " seq"
            speed += f" {short_number(pace.tokens) if pace else '-':>5} tok/s"
        return f"{counted}  {speed}"


def memory(reading: Reading) -> str:
    """``34/151 GiB``; empty where unknown."""
    if reading.memory_used is None:
        return ""
    if reading.memory_total is None:
        return f"{gibibytes(reading.memory_used)} GiB"
    return f"{gibibytes(reading.memory_used)}/{gibibytes(reading.memory_total)} GiB"


def amount(value: float | None, unit: str) -> str:
    """``61 °C``; empty where unknown."""
    return "" if value is None else f"{value:.0f}{unit}"


def host_text(host: HostReading) -> str:
    """``host 2.1 GiB, load 3.4``."""
    load = "" if host.load is None else f", load {host.load:.1f}"
    return f"host {memory_size(host.memory)}{load}"


def plain_parts(figures: Figures) -> list[str]:
    """The same figures in words: the stage, then each worker, then the host."""
    meter = figures.meter
    share = f" ({100 * meter.share:.1f} %)" if meter.share is not None else ""
    counts = " ".join(figures.counts.split())
    parts = [", ".join(figures.heading), f"{counts}{share}"]
    parts += [_worker_part(figures, worker) for worker in meter.workers]
    if figures.host is not None:
        parts.append(host_text(figures.host))
    return parts


def _worker_part(figures: Figures, worker: Worker) -> str:
    reading = figures.reading(worker)
    now = figures.meter.now
    pace, state = worker.rate.pace(now), worker.shown(now)
    if state == "busy":
        state = f"{rate_text(pace.sequences)} {rate_text(pace.tokens, 'tok')}" if pace else ""
    parts = [
        label(worker.number, worker.device),
        counted(worker.tasks, "piece"),
        f"{worker.sequences:,} ({percent(figures.meter.part(worker))})",
        state,
        memory(reading),
        amount(reading.utilisation, " %"),
        amount(reading.temperature, " C"),
        amount(reading.power, " W"),
    ]
    return " ".join(part for part in parts if part)
