"""What a finished run tells on the terminal; ``test_demo.py`` has all of it for one run."""

from pathlib import Path

import pytest

from virnucpro.cli.summary import call_lines, samples_text
from virnucpro.layout import Layout, SamplesFolder
from virnucpro.run.predict import Outcome
from virnucpro.run.sample_list import Sample
from virnucpro.settings import Thresholds
from virnucpro.stages.result_files import OutputFigures


def figures_with(**changes):
    known = {"statuses": {"scored": 90, "ambiguous": 10}, "chunks": {"scored": 900}}
    known |= {"calls": {"virus": 10, "nonvirus": 90}, "tiers": {"high": 7, "low": 3}}
    known |= {"hallmarked": 4, "middling": 5, "expected": 4.0, "doubtful": 0, "unfamiliar": 0}
    known |= {"highest_rate": 0.27, "bases": 500_000, "region_tiers": {"high": 5}}
    known |= {"regions": 5, "with_regions": 3, "region_bases": 61_000, "contig_model": ()}
    return OutputFigures(**known | {"thresholds": Thresholds(), "calibrated": True} | changes)


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
    text = "\n".join(call_lines(figures_with(**changes), Layout(Path("results"), "a"), "record"))
    assert ("27 % of these" in text, "--max-fdr 0.1" in text) == says
    assert ("--max-fdr 0.1 --no-genes" in text) == ("thresholds" in changes)


@pytest.mark.parametrize(
    ("middling", "hallmarked", "expected", "is_told"),
    [
        (5, 4, 4.0, False),
        (6, 4, 4.0, True),
        (0, 1, 3.5, True),
        (0, 1, 2.9, False),
        (0, 2, 6, False),
    ],
)
def test_a_sample_whose_calls_rest_on_little_says_so(middling, hallmarked, expected, is_told):
    found = figures_with(middling=middling, hallmarked=hallmarked, expected=expected)
    assert (found.caution is not None) == is_told
    lines = call_lines(found, Layout(Path("results"), "a"), "record")
    assert (found.caution in lines) == is_told


@pytest.mark.parametrize(
    ("bases", "calls", "order"),
    [
        (1_999_999, {"virus": 1}, ["classified as viral", "Other records", "viral regions"]),
        (2_000_000, {"virus": 1}, ["viral regions", "classified as viral", "fdr"]),
        (2_000_000, {"nonvirus": 1}, ["viral regions", "classified as viral", "Other records"]),
    ],
)
def test_regions_come_first_where_a_sample_may_be_one_genome(bases, calls, order):
    figures = figures_with(bases=bases, calls=calls, highest_rate=None)
    lines = call_lines(figures, Layout(Path("results"), "a"), "record")
    for part, line in zip(order, (*lines[:2], lines[-1]), strict=True):
        assert part in line


def test_samples_are_counted_together(tmp_path):
    found = figures_with(), figures_with(calls={"virus": 1, "nonvirus": 99}, tiers={})
    outcomes = [Outcome(each, {}, failed_records=0, computed=9) for each in found]
    samples = [Sample(name, name, outcome=each) for name, each in zip("ab", outcomes, strict=True)]
    text = "\n".join(samples_text(samples, SamplesFolder(tmp_path), overview=False))
    assert "11 of 200 records" in text
    assert "high: 7, low: 3), 8 of them" in text
    assert "10 viral regions with 122,000 bases; 6 records" in text
