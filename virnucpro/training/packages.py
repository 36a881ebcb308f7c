"""The packages of the extra ``train``, which not every installation has."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from virnucpro.errors import UsageError


def require_packages(modules: Sequence[str], what: str = "training") -> None:
    """Check that the modules of optional packages can be imported."""
    for module in modules:
        if find_spec(module) is None:
            raise UsageError(f"{what} needs {module}: pip install 'virnucpro[train]'")
