"""What a finished run tells on the terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from virnucpro.cli.summary import call_lines, summary_text
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


def test_the_first_lines_say_what_was_found() -> None:
    lines = summary_text(SUMMARY, ROOT).splitlines()
    assert lines[:3] == [
        "10 of 100 records are called virus, 7 of them surely (tier high).",
        "3 more records are not viral as a whole, but hold 4 viral regions, such as proviruses.",
        "75 records are called nonvirus, and 5 are undecided.",
    ]


def test_one_record_is_told_in_the_singular() -> None:
    calls = {"virus": 1, "nonvirus": 1, "undecided": 1, "unscored": 1}
    statuses = {"scored": 3, "ambiguous": 1}
    one = replace(RESULTS, statuses=statuses, calls=calls, sure=1, with_regions=1, more_regions=1)
    assert summary_text(replace(SUMMARY, results=one), ROOT).splitlines()[:5] == [
        "1 of 4 records is called virus, 1 of them surely (tier high).",
        "1 more record is not viral as a whole, but holds 1 viral region, such as proviruses.",
        "1 record is called nonvirus, and 1 is undecided.",
        "1 record was not judged, because nothing of it could be scored. It may be viral:",
        "  1 unscored: only ambiguous letters",
    ]


def test_unscored_records_may_be_viral_and_shorter_chunks_help() -> None:
    text = summary_text(SUMMARY, ROOT)
    assert "10 records were not judged" in text
    assert "They may be viral:" in text
    assert "  8 unscored: no frame without a stop codon" in text
    assert "Shorter chunks (-e" in text
    assert "Shorter chunks" not in summary_text(replace(SUMMARY, chunk_length=150), ROOT)
    whole = replace(SUMMARY, reading="whole chunks")
    assert "fewer than 30 known bases" in summary_text(whole, ROOT)


def test_calls_that_contradict_the_rates_are_told_with_a_way_out() -> None:
    assert not any("fdr" in line for line in call_lines(RESULTS, ROOT))
    doubtful = replace(RESULTS, highest_rate=0.27, doubtful=6)
    line = call_lines(doubtful, ROOT)[-1]
    assert line.startswith("Of the records called virus, an estimated 27 % are none (column fdr).")
    assert "leaves 4 of them" in line
    assert line.endswith("virnucpro call /elsewhere/results --max-fdr 0.1")


def test_the_files_are_listed_with_what_they_hold() -> None:
    lines = summary_text(SUMMARY, ROOT).splitlines()
    assert lines[-4:] == [
        "Results in /elsewhere/results; open the first file first:",
        "  a_virus.tsv  the records called virus, the surest first",
        "  a_merged/prediction_results.txt",
        "  a_run.json   how the results were made",
    ]


def test_nothing_scored_nothing_viral() -> None:
    nothing = replace(RESULTS, statuses={"ambiguous": 4}, calls={"unscored": 4}, with_regions=0)
    assert call_lines(nothing, ROOT) == ["None of the 4 records could be scored."]
    without = replace(RESULTS, calls={"nonvirus": 90}, with_regions=0, highest_rate=0.0)
    assert call_lines(without, ROOT)[0] == "0 of 100 records are called virus."


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
