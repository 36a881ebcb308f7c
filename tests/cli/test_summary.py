"""What a finished run tells on the terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from virnucpro.cli.summary import outcome_text, samples_text
from virnucpro.layout import Layout, SamplesFolder
from virnucpro.run.predict import Outcome
from virnucpro.run.sample_list import Sample
from virnucpro.settings import Thresholds
from virnucpro.stages.result_files import OutputFigures

RESULTS = OutputFigures(
    statuses={"scored": 90, "no_open_frame": 8, "ambiguous": 2},
    calls={"virus": 10, "nonvirus": 75, "undecided": 5, "unscored": 10},
    chunks={"scored": 900, "no_open_frame": 100},
    tiers={"high": 7, "low": 3},
    hallmarked=4,
    doubtful=0,
    regions=5,
    with_regions=3,
    region_bases=61_000,
    highest_rate=0.1,
    unfamiliar=0,
    thresholds=Thresholds(),
    calibrated=True,
    contig_model=(),
)


def _outcome(**changes: object) -> Outcome:
    results = replace(RESULTS, **changes)  # type: ignore[arg-type]
    return Outcome(results, {"input": {"path": "a.fa"}}, failed_records=0, computed=9)


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Some files of the results of a run, in the folder ``results``."""
    monkeypatch.chdir(tmp_path)
    layout = Layout(tmp_path / "results", "a")
    for path in (layout.virus_table, layout.predictions, layout.run_json):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.touch()
    return layout


USUAL = """\
10 of 100 records are classified as viral (tier high: 7, low: 3), 4 of them with hallmark genes.
Other records: 75 classified as nonviral, 5 undecided.
5 viral regions with 61,000 bases; 3 records not classified as viral hold regions.
10 records could not be judged, and may be viral:"""
FILES = """
Results in results; open the first file first:
  a_virus.tsv  the records classified as viral, the most certain first
  a_merged/prediction_results.txt
  a_run.json   how the results were made"""


@pytest.mark.parametrize(
    ("changes", "said", "unsaid"),
    [
        ({}, [USUAL, "  8 unscored: no frame without a stop", FILES], "fdr"),
        ({"highest_rate": 0.27, "doubtful": 10}, ["27 % of these are probably not"], "--max-fdr"),
        ({"highest_rate": 0.27, "doubtful": 6}, ["27 % of these are probably not"], "--max-fdr"),
        ({"highest_rate": 0.27, "doubtful": 5}, ["--max-fdr 0.1"], "None"),
        ({"highest_rate": None}, [USUAL], "fdr"),
        ({"highest_rate": 0.0}, [USUAL], "fdr"),
        (
            {"highest_rate": 0.27, "thresholds": Thresholds(genes=False)},
            ["--max-fdr 0.1 --no-genes"],
            "None",
        ),
    ],
)
def test_a_run_is_told_in_sentences(
    layout: Layout, changes: dict, said: list[str], unsaid: str
) -> None:
    text = "\n".join(outcome_text(_outcome(**changes), layout))
    assert not [words for words in said if words not in text]
    assert unsaid not in text


def test_regions_of_all_samples_are_told(tmp_path: Path) -> None:
    outcomes = [_outcome(), _outcome(calls={"virus": 1, "nonvirus": 89, "unscored": 10}, tiers={})]
    samples = [Sample(name, name, outcome=each) for name, each in zip("ab", outcomes, strict=True)]
    text = samples_text(samples, SamplesFolder(tmp_path), overview=False)
    assert (
        "11 of 200 records are classified as viral (tier high: 7, low: 3), 8 of them with hallmark genes."
        in text
    )
    regions = "10 viral regions with 122,000 bases; 6 records not classified as viral hold regions."
    assert regions in text
