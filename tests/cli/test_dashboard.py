"""The program in a pseudo-terminal of 80 columns."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import termios
from contextlib import suppress

from tests.cli.inputs import TOY
from tests.forked import ForkedCommand

SHOW, HIDE = "\x1b[?25h", "\x1b[?25l"


def test_ctrl_c_leaves_the_terminal_fine(tmp_path):
    source = tmp_path / "in.fa"
    source.write_text("".join(f">[red]r{n}\n{'GCT' * 160}\n" for n in range(50_000)))
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = ("virnucpro", "predict", source, "-o", tmp_path / "out", *TOY)
    process = ForkedCommand(*command, env={"TERM": "xterm"}, terminal=os.ttyname(slave))
    text, sent = os.read(master, 65536).decode(), False
    os.close(slave)
    with suppress(OSError):  # the other side is closed (Linux)
        while block := os.read(master, 65536):
            text += block.decode(errors="replace")
            if "/9]" in text and not sent:
                sent = True
                process.send_signal(signal.SIGINT)
    os.close(master)
    code = process.wait()
    process.close()
    assert code == 130, text
    assert "the same command again" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert text.rindex(SHOW) > text.rindex(HIDE)
    assert text.rindex("interrupted;") > text.rindex("/9]")  # the message is below the dashboard
