"""The program in a pseudo-terminal of 80 columns, and without a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import termios
from contextlib import suppress
from pathlib import Path

from tests.cli.inputs import TOY
from tests.forked import ForkedCommand

SHOW, HIDE = "\x1b[?25h", "\x1b[?25l"


def _predict_in_a_terminal(
    folder: Path, records: int, interrupt_at: str = "\0"
) -> tuple[int, str, str]:
    """Exit code, all that the terminal received, and the words of that."""
    source = folder / "in.fa"
    source.write_text("".join(f">[red]r{n}\n{'GCT' * 160}\n" for n in range(records)))
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = ("virnucpro", "predict", source, "-o", folder / "out", *TOY)
    process = ForkedCommand(*command, env={"TERM": "xterm"}, terminal=os.ttyname(slave))
    text, sent = os.read(master, 65536).decode(), False
    os.close(slave)
    with suppress(OSError):  # the other side is closed (Linux)
        while block := os.read(master, 65536):
            text += block.decode(errors="replace")
            if interrupt_at in text and not sent:
                sent = True
                process.send_signal(signal.SIGINT)
    os.close(master)
    code = process.wait()
    process.close()
    return code, text, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_a_terminal_gets_the_dashboard(tmp_path):
    code, text, words = _predict_in_a_terminal(tmp_path, 3000)
    assert code == 0, text
    assert re.search(r"\[[1-9]/9\] ", words)  # which ones depends on the machine's speed
    assert "Results in" in words
    for stage, left in re.findall(r"\[([45])/9\][^\n]*?  (at least \S+|\d\S+) left", words):
        assert left.startswith("at least") is (stage == "4"), left  # proteins are not measured yet
    assert text.rindex(SHOW) > text.rindex(HIDE)
    for line in words.split("\n"):
        if "/9]" in line:
            assert len(line.split("\r")[-1].rstrip()) <= 80


def test_ctrl_c_leaves_the_terminal_fine(tmp_path):
    code, text, words = _predict_in_a_terminal(tmp_path, 50_000, interrupt_at="/9]")
    assert code == 130, text
    assert "the same command again" in words
    assert text.rindex(SHOW) > text.rindex(HIDE)
    assert text.rindex("interrupted;") > text.rindex("/9]")  # the message is below the dashboard
