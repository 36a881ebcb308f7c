"""``virnucpro`` with packages of another folder, its own among them if it is there.

``run_forked(FOLDER, *WORDS, module="tests.changed_package")``
"""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    """Forget the package that is imported, import the other one, and run it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "virnucpro"]:
        del sys.modules[name]
    _, folder, *sys.argv[1:] = sys.argv
    sys.path.insert(0, folder)
    import_module("virnucpro.__main__").main()
