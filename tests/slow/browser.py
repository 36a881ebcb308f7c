"""A real browser, headless, driven through chromedriver by plain HTTP requests."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
AVAILABLE = bool(CHROMIUM and CHROMEDRIVER)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--hide-scrollbars"),
)


class Browser:
    """One window of a browser."""

    def __init__(self, address: str, folder: Path) -> None:
        """Start it with an empty profile; downloads go to ``folder/downloads``."""
        self.downloads = folder / "downloads"
        self._address = address
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        wanted["timeouts"] = {"script": 300_000}  # milliseconds
        answer = self._post("/session", {"capabilities": {"alwaysMatch": wanted}})
        self._address += f"/session/{answer['sessionId']}"
        self.devtools(
            "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads)
        )

    def _post(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(
            self._address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as response:
            return json.load(response)["value"]

    def devtools(self, command: str, **parameters: Any) -> Any:
        """Send a command of the protocol of Chromium."""
        return self._post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, page: Path) -> None:
        """Load a file and wait until it is there."""
        self._post("/url", {"url": page.as_uri()})

    def run(self, script: str) -> Any:
        """Return what the body of a function returns in the page."""
        return self._post("/execute/sync", {"script": script, "args": []})

    def messages(self) -> list[str]:
        """Return what the console has shown since the last time."""
        return [entry["message"] for entry in self._post("/se/log", {"type": "browser"})]

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the page, and whether the user prefers the dark."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Save what is shown, or the ``whole`` page, as PNG."""
        answer = self.devtools("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        """Close the window and end the browser."""
        request = urllib.request.Request(self._address, method="DELETE")
        urllib.request.urlopen(request, timeout=300).close()


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start a browser for the block."""
    assert CHROMEDRIVER is not None
    with subprocess.Popen(
        [CHROMEDRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as driver:
        try:
            assert driver.stdout is not None
            line = next(line for line in driver.stdout if "started successfully on port" in line)
            window = Browser(f"http://127.0.0.1:{line.split()[-1].rstrip('.')}", folder)
            try:
                yield window
            finally:
                window.close()
        finally:
            driver.terminate()
