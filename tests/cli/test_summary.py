"""What a finished run tells on the terminal; ``test_demo.py`` has all of it for one run."""

from __future__ import annotations

from pathlib import Path

import pytest

from virnucpro.cli.summary import call_lines
from virnucpro.layout import Layout
from virnucpro.settings import Thresholds
from virnucpro.stages.result_files import OutputFigures


def _figures(**changed: object) -> OutputFigures:
    found = {
        "statuses": {"scored": 90, "no_open_frame": 8, "ambiguous": 2},
        "calls": {"virus": 10, "nonvirus": 75, "undecided": 5, "unscored": 10},
        "chunks": {"scored": 900, "no_open_frame": 100},
        "tiers": {"high": 7, "low": 3},
        **{"hallmarked": 4, "doubtful": 0, "unfamiliar": 0, "highest_rate": 0.1},
        **{"regions": 5, "with_regions": 3, "region_bases": 61_000},
        **{"thresholds": Thresholds(), "calibrated": True, "contig_model": ()},
    }
    return OutputFigures(**found | changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"highest_rate": None}, (False, False)),
        ({"highest_rate": 0.1}, (False, False)),
        ({"highest_rate": 0.27, "doubtful": 6}, (True, False)),  # most would be left out
        ({"highest_rate": 0.27, "doubtful": 5}, (True, True)),
        ({"highest_rate": 0.27, "thresholds": Thresholds(genes=False)}, (True, True)),
    ],
)
def test_a_lower_rate_is_offered_where_half_of_the_viruses_stay(changes, says):
    text = "\n".join(call_lines(_figures(**changes), Layout(Path("results"), "a"), "record"))
    assert ("27 % of these" in text, "--max-fdr 0.1" in text) == says
    assert ("--max-fdr 0.1 --no-genes" in text) == ("thresholds" in changes)
