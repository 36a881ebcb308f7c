"""VirNucPro: find viral sequences in sequencing data.

What Python programs use is here: :func:`predict`, :func:`open_run`, :func:`rcl_predict` and
:func:`open_rcl_run`, with the classes of what they return. They are loaded at their first use, so
``import virnucpro`` imports neither torch nor numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from virnucpro.errors import VirNucProError
from virnucpro.version import __version__

if TYPE_CHECKING:
    from virnucpro.api import predict, rcl_predict
    from virnucpro.results import PredictionRun, RclRun, Rows, open_rcl_run, open_run

__all__ = [
    "PredictionRun",
    "RclRun",
    "Rows",
    "VirNucProError",
    "__version__",
    "open_rcl_run",
    "open_run",
    "predict",
    "rcl_predict",
]

_PLACES = {
    "virnucpro.api": ("predict", "rcl_predict"),
    "virnucpro.results": ("PredictionRun", "RclRun", "Rows", "open_rcl_run", "open_run"),
}


def __getattr__(name: str) -> Any:
    """Load what is asked for, at its first use."""
    for place, names in _PLACES.items():
        if name in names:
            return getattr(import_module(place), name)
    raise AttributeError(f"module 'virnucpro' has no attribute {name!r}")
