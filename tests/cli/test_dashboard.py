"""The program in a pseudo-terminal of 80 columns, and without a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import termios
import time
from pathlib import Path

from tests.forked import ForkedCommand

TOY = ("--model-type", "toy", "--device", "cpu")
SHOW, HIDE = "\x1b[?25h", "\x1b[?25l"


def _reads(path: Path, count: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f">[red]r{n}\n{'GCT' * 160}\n" for n in range(count)))
    return path


def _in_a_terminal(*arguments: object, interrupt_at: str | None = None) -> tuple[int, str]:
    """Exit code, and all that the terminal received."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = ForkedCommand("virnucpro", *arguments, env={"TERM": "xterm"}, terminal=slave)
    os.close(slave)
    text, sent = "", False
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            block = os.read(master, 65536)
        except OSError:  # the other side is closed (Linux)
            break
        if not block:
            break
        text += block.decode(errors="replace")
        if interrupt_at and interrupt_at in text and not sent:
            sent = True
            process.send_signal(signal.SIGINT)
    os.close(master)
    code = process.wait(timeout=300)
    process.close()
    return code, text


def _words(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_a_terminal_gets_the_dashboard(tmp_path: Path) -> None:
    reads = _reads(tmp_path / "in/reads.fa", 3000)
    code, text = _in_a_terminal("predict", reads, "-o", tmp_path / "out", *TOY)
    assert code == 0, text
    words = _words(text)
    assert re.search(r"\[[1-9]/9\] ", words)  # which ones depends on the machine's speed
    assert "Results in" in words
    for stage, left in re.findall(r"\[([45])/9\][^\n]*?  (at least \S+|\d\S+) left", words):
        assert left.startswith("at least") is (stage == "4"), left  # proteins are not measured yet
    assert text.rindex(SHOW) > text.rindex(HIDE)
    for line in words.split("\n"):
        if "/9]" in line:
            assert len(line.split("\r")[-1].rstrip()) <= 80


def test_ctrl_c_leaves_the_terminal_fine(tmp_path: Path) -> None:
    many = _reads(tmp_path / "in/many.fa", 50_000)
    code, text = _in_a_terminal("predict", many, "-o", tmp_path / "out", *TOY, interrupt_at="/9]")
    assert code == 130, text
    assert "the same command again" in _words(text)
    assert text.rindex(SHOW) > text.rindex(HIDE)
    assert text.rindex("interrupted;") > text.rindex("/9]")  # the message is below the dashboard
