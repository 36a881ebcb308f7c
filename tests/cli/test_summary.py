"""What a finished run tells on the terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from virnucpro.cli.summary import summary_text
from virnucpro.run.predict import Summary
from virnucpro.settings import Cuts
from virnucpro.stages.results import OutputFigures

RESULTS = OutputFigures(
    statuses={"scored": 90, "no_open_frame": 8, "ambiguous": 2},
    calls={"virus": 10, "nonvirus": 75, "undecided": 5, "unscored": 10},
    chunks={"scored": 900, "no_open_frame": 100},
    sure=7,
    doubtful=0,
    regions=5,
    with_regions=3,
    more_regions=4,
    highest_rate=0.08,
    cuts=Cuts(),
    calibrated=True,
    contig_model=(),
)
ROOT = Path("/elsewhere/results")
SUMMARY = Summary(
    records=100,
    frames=1200,
    reading="open frames",
    chunk_length=500,
    results=RESULTS,
    failed_records=0,
    adopted=0,
    seconds={},
    host_wait={},
    computed=9,
    files=(ROOT / "a_virus.tsv", ROOT / "a_merged/prediction_results.txt", ROOT / "a_run.json"),
)


NOTHING = {"statuses": {"ambiguous": 4}, "calls": {"unscored": 4}, "with_regions": 0}
ONE = {"calls": {"virus": 1, "nonvirus": 1, "undecided": 1, "unscored": 1}, "sure": 1}
ONE |= {"statuses": {"scored": 3, "ambiguous": 1}, "with_regions": 1, "more_regions": 1}


@pytest.mark.parametrize(
    ("changes", "of_results", "beginning", "inside"),
    [
        (
            {},
            {},
            "10 of 100 records are called virus, 7 of them surely (tier high).\n"
            "3 more records are not viral as a whole, but hold 4 viral regions, such as proviruses.\n"
            "75 records are called nonvirus, and 5 are undecided.\n"
            "10 records were not judged,",
            ["  8 unscored: no frame without a stop codon\n", "Shorter chunks (-e"],
        ),
        (
            {},
            ONE,
            "1 of 4 records is called virus, 1 of them surely (tier high).\n"
            "1 more record is not viral as a whole, but holds 1 viral region, such as proviruses.\n"
            "1 record is called nonvirus, and 1 is undecided.\n"
            "1 record was not judged, because nothing of it could be scored. It may be viral:\n"
            "  1 unscored: only ambiguous letters\n",
            [],
        ),
        ({}, NOTHING, "None of the 4 records could be scored.\n4 records were", []),
        ({"reading": "whole chunks"}, {}, "10 of", ["fewer than 30 known bases"]),
        (
            {},
            {"highest_rate": 0.27, "doubtful": 6},
            "10 of",
            ["an estimated 27 % are none", "leaves 4 of them: virnucpro call /elsewhere/results -"],
        ),
        (
            {},
            {},
            "10 of",
            [
                "Results in /elsewhere/results; open the first file first:\n"
                "  a_virus.tsv  the records called virus, the surest first\n"
                "  a_merged/prediction_results.txt\n"
                "  a_run.json   how the results were made"
            ],
        ),
    ],
)
def test_a_run_is_told_in_sentences(
    changes: dict, of_results: dict, beginning: str, inside: list[str]
) -> None:
    results = replace(RESULTS, **of_results)
    text = summary_text(replace(SUMMARY, results=results, **changes), ROOT)
    assert text.startswith(beginning)
    assert not [words for words in inside if words not in text]
    assert ("--max-fdr" in text) == ("doubtful" in of_results)


def test_chunks_that_are_short_already_need_no_advice() -> None:
    assert "Shorter chunks" not in summary_text(replace(SUMMARY, chunk_length=150), ROOT)


def test_the_readme_shows_what_the_terminal_shows() -> None:
    page = (Path(__file__).parents[2] / "README.md").read_text()
    quoted = page[page.index("5 of 45 records are called virus") :].split("\n```")[0]
    results = replace(
        RESULTS,
        statuses={"scored": 43, "ambiguous": 1, "too_short": 1},
        calls={"virus": 5, "nonvirus": 32, "undecided": 6, "unscored": 2},
        chunks={"scored": 96, "ambiguous": 1, "too_short": 2},
        sure=3,
        with_regions=0,
    )
    summary = replace(
        SUMMARY, records=45, frames=96, copies=4, reading="whole chunks", results=results
    )
    assert summary_text(summary, ROOT).startswith(f"{quoted}\nResults in")
