"""What a finished run tells on the terminal; ``test_demo.py`` has all of it for one run."""

from pathlib import Path

import pytest

from virnucpro.cli.summary import call_lines
from virnucpro.layout import Layout
from virnucpro.settings import Thresholds
from virnucpro.stages.result_files import OutputFigures


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"highest_rate": None}, (False, False)),
        ({"highest_rate": 0.1}, (False, False)),
        ({"doubtful": 6}, (True, False)),  # most would be left out
        ({"doubtful": 5}, (True, True)),
        ({"thresholds": Thresholds(genes=False)}, (True, True)),
    ],
)
def test_a_lower_rate_is_offered_where_half_of_the_viruses_stay(changes, says):
    known = {
        "statuses": {"scored": 9},
        "calls": {"virus": 10},
        "chunks": {"scored": 9},
        "tiers": {},
    }
    known |= {"hallmarked": 4, "doubtful": 0, "unfamiliar": 0, "highest_rate": 0.27}
    known |= {"regions": 5, "with_regions": 3, "region_bases": 9, "contig_model": ()}
    known |= {"thresholds": Thresholds(), "calibrated": True}
    figures = OutputFigures(**known | changes)
    text = "\n".join(call_lines(figures, Layout(Path("results"), "a"), "record"))
    assert ("27 % of these" in text, "--max-fdr 0.1" in text) == says
    assert ("--max-fdr 0.1 --no-genes" in text) == ("thresholds" in changes)
