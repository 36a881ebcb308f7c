"""What all plots share: their colours, and how they become files.

The colours are those of Okabe and Ito, which the colour-blind can tell apart too.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLACK, BLUE, ORANGE, GREY = "#000000", "#0072B2", "#D55E00", "#999999"
OTHERS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DOTS_PER_INCH = 150


def plain_axes(axes: Axes) -> Axes:
    """Return axes with a grid, and without lines on the right and at the top."""
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def image_of(figure: Figure, form: str, **options: Any) -> bytes:
    """Return a figure as ``png``, ``svg`` or ``pdf``. Equal figures give equal bytes."""
    from matplotlib import rc_context

    out = BytesIO()
    # Neither the time nor random names.
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    with rc_context({"svg.hashsalt": "virnucpro"}):
        figure.savefig(out, format=form, metadata=dated, **{"dpi": DOTS_PER_INCH, **options})
    return out.getvalue()
