"""Make the pictures of the documentation: the dashboard and a report. Needs Chromium and pdftoppm.

    virnucpro predict contigs.fa -o results --model-type lite
    python -m tools.pictures docs/pictures --report results/contigs_report.html

The dashboard is that of ``tools.replay_dashboard``, whose GPUs are invented; the report is yours.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI

from tools.replay_dashboard import Run, device, invented_reading
from virnucpro.layout import Layout
from virnucpro.settings import DisplaySettings
from virnucpro.ui.dashboard import RunScreen

COLUMNS = 116
SECONDS = 300.0  # simulated; until the picture is taken


class InstantRun(Run):
    """A simulated run whose clock jumps instead of passing."""

    now = 0.0

    def wait_until(self, then: float, end: float) -> bool:
        self.now = max(self.now, min(then, end))
        return self.now < end


def dashboard_page(folder: Path) -> str:
    """Return the dashboard in the middle of a simulated run on eight GPUs, as HTML."""
    layout = Layout(folder, "simulated", 500)
    display = DisplaySettings(auto_log=False)
    quiet = Console(file=io.StringIO(), width=COLUMNS)
    console = Console(file=io.StringIO(), width=COLUMNS, record=True, force_terminal=True)
    runs: list[InstantRun] = []

    def clock() -> float:
        return runs[0].now if runs else 0.0

    with RunScreen(display, layout, quiet, invented_reading, clock).shown() as screen:
        devices = [device(number, None) for number in range(8)]
        runs.append(InstantRun(screen, devices, 1200, clock))
        runs[0].play(SECONDS)
        screen.check()
        console.print(screen.picture(COLUMNS))
    page = console.export_html(theme=MONOKAI, inline_styles=True)
    return page.replace("<body>", '<body style="margin: 0; padding: 12px; font-size: 14px">')


def photograph(page: Path, picture: Path, width: int, height: int, *options: str) -> None:
    """Save the first ``height`` pixels of a page as PNG."""
    size = f"--window-size={width},{height}"
    show(page, *options, size, f"--screenshot={picture.absolute()}")
    few_colours(picture)


def photograph_print(page: Path, picture: Path, folder: Path) -> None:
    """Save the first sheet of a print as PNG; the print itself is written into ``folder``."""
    show(page, "--no-pdf-header-footer", f"--print-to-pdf={folder / 'print.pdf'}")
    command = ["pdftoppm", "-png", "-r", "80", "-singlefile"]
    subprocess.run([*command, folder / "print.pdf", picture.with_suffix("")], check=True)
    few_colours(picture)


def few_colours(picture: Path) -> None:
    """Write a picture again with 256 colours: a third of the bytes."""
    with Image.open(picture) as image:
        image.convert("RGB").quantize(256).save(picture, optimize=True)


def show(page: Path, *options: str) -> None:
    """Open a page in Chromium with ``options`` that say what becomes of it."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no Chromium here: install it first")
    subprocess.run(
        [
            *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(*options, page.absolute().as_uri()),
        ],
        check=True,
        capture_output=True,
    )


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(description="Make the pictures of the documentation.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--report", type=Path, required=True, help="a STEM_report.html")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "dashboard.html"
        page.write_text(dashboard_page(Path(folder)), encoding="utf-8")
        photograph(page, chosen.folder / "dashboard.png", 1010, 245)
        photograph_print(chosen.report, chosen.folder / "report_print.png", Path(folder))
    photograph(chosen.report, chosen.folder / "report.png", 1200, 1200)
    photograph(chosen.report, chosen.folder / "report_phone.png", 390, 844)
    dark = "--blink-settings=preferredColorScheme=0"
    photograph(chosen.report, chosen.folder / "report_dark.png", 1200, 800, dark)


if __name__ == "__main__":
    main()
