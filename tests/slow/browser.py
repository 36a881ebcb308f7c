"""A page in a real browser, headless."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """One page, and what its console has shown."""

    def __init__(self, page: Page) -> None:
        self.page, self._messages = page, list[str]()
        page.on("console", lambda message: self._messages.append(message.text))
        page.on("pageerror", lambda error: self._messages.append(str(error)))

    def run(self, script: str) -> Any:
        """Return what the body of a function returns in the page."""
        return self.page.evaluate(f"() => {{ {script} }}")

    def messages(self) -> list[str]:
        """Return what the console has shown since the last time."""
        shown, self._messages = self._messages, []
        return shown

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the page, and whether the user prefers the dark."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme="dark" if dark else "light")


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser for the block."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield Browser(started.new_page())
        started.close()
