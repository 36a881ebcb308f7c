"""The files of results: false discovery rates, thresholds, the ranked table, and older runs."""

from __future__ import annotations

import math
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.cli.inputs import carried_out, open_bases, table, toy_request
from tests.declared import Chunk, add_record, call_record, chunks_of, with_changes
from virnucpro import columns
from virnucpro.classifier.evidence import no_evidence
from virnucpro.errors import RunInterruptedError, UsageError
from virnucpro.events import Event, Progressed, StageStarted
from virnucpro.io.records import Record, Records
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest
from virnucpro.settings import DEFAULT_THRESHOLDS, DOUBTFUL, TOY_CLASSIFIER, Thresholds
from virnucpro.stages import output, result_files
from virnucpro.stages.calls import TIERS, contig_rates
from virnucpro.stages.genes import GeneFinder, Hit, Predicted
from virnucpro.stages.kinds import Kind, VirusKinds
from virnucpro.stages.regions import Region
from virnucpro.stages.result_files import ResultFiles
from virnucpro.store.disk import Disk
from virnucpro.workers import worker
from virnucpro.workers.signals import interruptible

Asking = Callable[..., PredictionRequest]
RECORDS = 130  # enough for the correction of the share of virus


@pytest.fixture
def request_of(tmp_path: Path) -> Asking:
    source = tmp_path / "in.fa"

    def _request(
        classifier: Path, records: int = RECORDS, **thresholds: float
    ) -> PredictionRequest:
        lines = [f">r{n}\n{open_bases(60 + n, n)}\n" for n in range(records)]
        source.write_text(">closed\nTAATTAATTAATTAATTAATTAA\n" + "".join(lines))
        models = {"nucleotide_model": "toy", "protein_model": "toy", "classifier": str(classifier)}
        values = {"model_type": "custom", "chunk_length": 200, "sequences_per_file": 50, **models}
        return toy_request(source, tmp_path / classifier.stem, **values, **thresholds)

    return _request


@pytest.fixture
def calibrated(tmp_path: Path) -> Path:
    """The toy classifier with a temperature that changes no score."""
    path = tmp_path / "calibrated.safetensors"
    path.write_bytes(with_changes(TOY_CLASSIFIER, temperature=1.0))
    return path


def test_records_have_rates_and_the_surest_come_first_up_to_a_rate_that_is_asked_for(
    request_of, calibrated
):
    request = request_of(calibrated, min_score=-1.0, genes=False)
    carried_out(request)
    contigs = {row["record"]: row for row in table(request.layout.contigs_table)}
    assert [name for name, row in contigs.items() if row["fdr"] == "NA"] == ["closed"]
    assert contigs.pop("closed")["status"] == "no_open_frame"
    odds: dict[str, list[float]] = {name: [] for name in contigs}
    for row in table(request.layout.chunks_table):
        if row["status"] == "scored":
            others, virus = float(row["max_score_0"]), float(row["max_score_1"])
            odds[row["record"]].append(math.log(virus) - math.log(others))
    flat = np.concatenate(list(odds.values()))
    chunks = np.array([len(found) for found in odds.values()])
    expected = contig_rates(flat, chunks, 200 * chunks, no_evidence(len(chunks)))
    for name, rates in (("fdr", expected.fdr), ("error_rate", expected.errors)):
        found = [float(row[name]) for row in contigs.values()]
        assert found == pytest.approx(rates, abs=1e-6)
    rows = table(request.layout.virus_table)
    assert len(rows) == RECORDS
    order = [(-TIERS.index(row["tier"]), -float(row["score"]), -int(row["length"])) for row in rows]
    assert order == sorted(order)
    assert {"one chunk", "ok"} <= {row["evidence"] for row in rows}
    for row in rows:
        contig = contigs[row["record"]]
        assert row["score"] == contig["virus_score"]
        assert row["chunks_scored"] == contig["chunks_scored"]
        assert (row["evidence"] == "one chunk") == (row["chunks_scored"] == "1")
    rates = sorted(float(row["fdr"]) for row in rows)
    most = rates[RECORDS // 2]
    carried_out(request_of(calibrated, min_score=-1.0, max_fdr=most + 1e-6, genes=False))
    kept = sorted(float(row["fdr"]) for row in table(request.layout.virus_table))
    assert kept == [rate for rate in rates if rate <= most]
    assert len(kept) < RECORDS


def test_results_do_not_depend_on_how_many_records_are_worked_on_at_a_time(
    request_of, calibrated, monkeypatch
):
    request = request_of(calibrated, 40, min_score=0.0)
    together, few = run_prediction(request, lambda _: None).results, request.layout.root / "few"
    monkeypatch.setattr(columns, "ROWS_AT_A_TIME", 7)
    monkeypatch.setattr(output, "CHUNKS_AT_A_TIME", 2)
    again = replace(request, output_dir=few)
    assert run_prediction(again, lambda _: None).results == together
    files = [
        (layout.chunks_table, layout.contigs_table, layout.virus_table, *layout.virus_genes)
        for layout in (request.layout, again.layout)
    ]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


@pytest.mark.parametrize(("most", "sizes"), [(10_000_000, [2, 2, 1]), (1000, [1] * 5)])
def test_terminal_repeats_and_kinds_of_viruses(request_of, monkeypatch, most, sizes):
    monkeypatch.setattr(result_files, "RECORDS_AT_A_TIME", 2)
    monkeypatch.setattr(result_files, "MOST_BASES_AT_A_TIME", most)
    asked: list[int] = []

    def of(_: VirusKinds, records: list[list[str]]) -> list[Kind]:
        asked.append(len(records))
        return [Kind(own[0][:9], "yes") for own in records]

    monkeypatch.setattr(VirusKinds, "of", of)
    request = request_of(TOY_CLASSIFIER, min_score=-1.0)
    whole = open_bases(400, 2)
    text = "".join(f">r{n} of five\n{whole[n:]}{whole[2:42] if n == 2 else ''}\n" for n in range(5))
    Path(request.source).write_text(text)
    carried_out(request)
    assert asked == sizes
    rows = {row["record"]: row for row in table(request.layout.virus_table)}
    assert {name: row["topology"] for name, row in rows.items()} == {
        f"r{n}": "DTR" if n == 2 else "linear" for n in range(5)
    }
    told = {name: row["virus_kind"] for name, row in rows.items()}
    assert told == {f"r{n}": whole[n : n + 9] for n in range(5)}
    assert {row["unfamiliar"] for row in rows.values()} == {"yes"}
    headers = [r.header for r in Records(request.layout.virus_fasta)]
    assert headers[2] == "r2 of five [topology=circular]"
    assert headers[3] == "r3 of five"


def test_without_rates_a_rate_cannot_be_asked_for(request_of):
    request = request_of(TOY_CLASSIFIER, max_fdr=0.4)
    with pytest.raises(UsageError, match="needs a calibrated classifier"):
        carried_out(request)
    assert not request.layout.root.exists()
    figures = run_prediction(request_of(TOY_CLASSIFIER, min_score=0.6), lambda _: None).results
    assert figures.highest_rate is None
    assert {row["fdr"] for row in table(request.layout.contigs_table)} == {"NA"}
    assert {float(row["score"]) > 0.6 for row in table(request.layout.virus_table)} <= {True}


def test_the_sequences_of_regions_follow_those_of_records(tmp_path):
    sequence = "ACGT" + "".join(random.Random(0).choices("ACGT", k=11_996))
    record = Record("a=;,%", "a=;,% described", sequence)
    chunks = [Chunk("c", 0, 12000, "scored", 1, "0.9", "0.1")]
    region = Region(4, 8004, 20, 20, 0.9, -0.8, False, in_host=True)
    names = ("chunks", "contigs", "virus", "fasta", "regions", "bed", "gff3")
    host = call_record(12000, chunks)
    with ExitStack() as stack:
        writers = {n: stack.enter_context(Disk().create(tmp_path / n)) for n in names}
        files = ResultFiles(writers)
        virus = host._replace(call="virus")
        cells = {"chunk": ["c"], "frames": ["1"], "max_score_0": ["0.9"], "max_score_1": ["0.1"]}
        files.add_chunks(["renamed_2"], chunks_of(chunks), cells)
        add_record(files, record, "renamed_2", host, [region])
        add_record(files, record._replace(sequence="ACGT"), "short", virus._replace(fdr=0.2), [])
        add_record(files, record, record.id, virus, [region])
        add_record(files, record, "z", virus._replace(fdr=DOUBTFUL), [])
        add_record(files, record, "second", virus._replace(fdr=0.01), [])
        add_record(files, record, "twice", host, [region, region])
        figures = files.finish(DEFAULT_THRESHOLDS, None, calibrated=False)
    headers = [line for line in (tmp_path / "fasta").read_text().splitlines() if line[0] == ">"]
    others = [f">{name} described" for name in ("short", "a=;,%", "z", "second")]
    twice = [">twice|region_5_8004 described"] * 2
    assert headers == [">renamed_2|region_5_8004 described", *others, *twice]
    ranked = [row["record"] for row in table(tmp_path / "virus")]  # equal scores: by length, place
    assert ranked == ["a=;,%", "z", "second", "short"]
    assert (tmp_path / "fasta").read_text().startswith(f"{headers[0]}\n{sequence[4:84]}\n")
    places = {(row["start"], row["end"]) for row in table(tmp_path / "chunks")}
    assert places == {("1", "12000")}
    cells = [(row["regions"], row["viral_bases"]) for row in table(tmp_path / "contigs")]
    assert cells[:5] == [("1", "8000"), ("0", "4"), ("1", "8000"), *[("0", "12000")] * 2]
    assert cells[5:] == [("2", "16000")]
    assert (tmp_path / "bed").read_text().count("\n") == 4
    assert figures.region_counts == (4, 32_000, 2)
    found = [(row["tier"], row["fdr"]) for row in table(tmp_path / "regions")]
    assert found == [("high", "NA")] * 4  # no rates without calibration
    assert (figures.doubtful, figures.highest_rate) == (1, 0.2)


def test_every_stage_reports_the_sequences_that_it_has_to_do(request_of):
    to_do: dict[str, int] = {}
    done: Counter[str] = Counter()

    def show(event: Event) -> None:
        if isinstance(event, StageStarted):
            to_do[event.stage] = event.sequences
        elif isinstance(event, Progressed):
            done[list(to_do)[-1]] += event.sequences

    run_prediction(request_of(TOY_CLASSIFIER), show)
    known = {stage: count for stage, count in to_do.items() if count}
    assert known == {stage: done[stage] for stage in known}
    assert {"translation", "splitting", "prediction", "output"} < known.keys()


def test_a_run_moves_on_and_can_be_stopped_while_genes_are_found(request_of, monkeypatch):
    """Blocks have one record each. The signal arrives while the genes of the sixth are found."""
    request = request_of(TOY_CLASSIFIER, 12, min_score=-1.0)
    monkeypatch.setattr(output, "MOST_BASES_AT_A_TIME", 1)
    done: list[int] = []
    moved: list[int] = []
    find = GeneFinder.find

    def show(event: Event) -> None:
        if isinstance(event, StageStarted):
            done.clear()
        elif isinstance(event, Progressed):
            done.append(event.sequences)

    def interrupted(finder: GeneFinder, parts: Sequence[str]) -> list[Predicted]:
        moved.append(sum(done))
        if len(moved) == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return find(finder, parts)

    monkeypatch.setattr(GeneFinder, "find", interrupted)
    monkeypatch.setattr(worker, "REPORT_SECONDS", 0)
    with interruptible() as interruption, pytest.raises(RunInterruptedError):
        run_prediction(request, show, interruption=interruption)
    assert moved == [0, 1, 1, 2, 2, 3]
    assert not list(request.layout.root.glob("*_virus_genes.*"))
    monkeypatch.setattr(GeneFinder, "find", find)
    assert carried_out(request).pieces == {"output": 1}
    assert all(path.exists() for path in request.layout.virus_genes)


@pytest.mark.parametrize(
    ("score", "kind", "least", "is_looked_at"),
    [
        (-0.3, "host marker", 0.3, True),
        (-0.31, "host marker", 0.3, False),
        (-0.31, "hallmark", 0.3, True),
        (-0.5, "host marker", -0.5, True),
    ],
)
def test_whose_virus_markers_are_looked_for(score, kind, least, is_looked_at):
    hits = [Hit(0, 900, "a function", kind)]
    assert output.may_be_viral(score, hits, Thresholds(min_score=least)) is is_looked_at


def test_a_region_passes_the_cuts_by_its_own_length_and_score(request_of, monkeypatch):
    places = [(100, 300, 0.9), (301, 500, 0.9), (500, 700, 0.5)]
    regions = [Region(start, stop, 4, 4, score, None, False) for start, stop, score in places]
    monkeypatch.setattr(output, "SHORTEST_RECORD", 0)
    monkeypatch.setattr(output, "find_regions", lambda *_: regions)
    request = request_of(TOY_CLASSIFIER, min_score=0.5, min_length=200)
    sequence = "".join(random.Random(0).choices("ACGT", k=900))
    Path(request.source).write_text(f">a\n{sequence}\n")
    carried_out(request)
    found = [(row["start"], row["end"], row["fdr"]) for row in table(request.layout.regions_table)]
    assert found == [("101", "300", "NA")]


def test_regions_of_a_virus_and_regions_with_a_high_rate_are_left_out(
    request_of, calibrated, monkeypatch
):
    """A region in a virus stays where the rest looks like a host."""
    scores = {0: 0.9, 1000: 0.8, 2000: 0.5}
    regions = [
        Region(start, start + 500, 4, 4, score, None, False, in_host=start == 1000)
        for start, score in scores.items()
    ]
    monkeypatch.setattr(output, "SHORTEST_RECORD", 0)
    monkeypatch.setattr(output, "find_regions", lambda *_: regions)
    monkeypatch.setattr(output, "region_fdr", lambda found, _: [1 - s for s in found.tolist()])
    sequence = "".join(random.Random(0).choices("ACGT", k=3000))

    def starts(**thresholds: float) -> list[str]:
        request = request_of(calibrated, genes=False, **thresholds)
        Path(request.source).write_text(f">a\n{sequence}\n")
        carried_out(request)
        return [row["start"] for row in table(request.layout.regions_table)]

    assert starts(min_score=0.4) == ["1", "1001", "2001"]
    assert starts(min_score=0.4, max_fdr=0.2) == ["1", "1001"]
    assert starts(min_score=-1) == ["1001"]
