"""How figures and names are written, on the screen and in the log alike."""

from __future__ import annotations

from virnucpro.contracts import Device, Task


def label(worker: int, device: Device) -> str:
    """What a worker is called: ``GPU 3``, or ``CPU 0`` by its own number."""
    return f"GPU {device.index}" if device.kind == "cuda" else f"CPU {worker}"


def full_label(worker: int, device: Device) -> str:
    """``GPU 3 NVIDIA H200``."""
    name = label(worker, device)
    return f"{name} {device.name}" if device.kind == "cuda" else name


def piece(task: Task) -> str:
    """A task, by the file it reads where it is a span: ``output_7.fa[3000:4000]``."""
    if task.span is None or not task.inputs:
        return task.name
    return f"{task.inputs[0].name}[{task.span[0]}:{task.span[1]}]"


def counted(pieces: int) -> str:
    """``1 piece``, ``2 pieces``."""
    return f"{pieces:,} piece{'' if pieces == 1 else 's'}"


def clock(seconds: float) -> str:
    """``1:02:03`` or ``2:03``.

    >>> clock(3723), clock(123)
    ('1:02:03', '2:03')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def short(number: float) -> str:
    """At most five characters, three figures or more.

    >>> short(7), short(1692), short(61234), short(489300), short(1234567)
    ('7', '1,692', '61.2k', '489k', '1.23M')
    """
    if number < 9_999.5:
        return f"{number:,.0f}"
    for unit in ("k", "M", "G"):
        number /= 1000
        if number < 999.5:
            digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
            return f"{number:.{digits}f}{unit}"
    return f"{number:.0f}G"


def gibibytes(count: float) -> str:
    """Bytes as a number of GiB, without the unit.

    >>> gibibytes(0.12 * 2**30), gibibytes(3.42 * 2**30), gibibytes(140.4 * 2**30)
    ('0.12', '3.4', '140')
    """
    count /= 2**30
    return f"{count:.{2 if count < 0.995 else 1 if count < 9.95 else 0}f}"


def printable(text: str) -> str:
    """``text`` with whatever could move a terminal's cursor written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)
