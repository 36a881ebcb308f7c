"""The column of false discovery rates: with and without a temperature, and in older runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from virnucpro.classifier.files import with_temperature
from virnucpro.contracts import OutputFile, Task
from virnucpro.events import Event, StageStarted
from virnucpro.layout import Layout, RunLayout
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest
from virnucpro.settings import TOY_CLASSIFIER, AnalysisSettings, MachineSettings
from virnucpro.stages.fdr import contig_fdr
from virnucpro.stages.output import OutputStage
from virnucpro.store.disk import sha256_of
from virnucpro.store.documents import sealed, unsealed
from virnucpro.store.receipts import fingerprint
from virnucpro.tables import CONTIGS

CODONS = ["GCT", "ACC", "GGA", "TTC", "CAT", "AAG", "CTG", "GAT"]
RECORDS = 130  # enough for the correction of the share of virus


@pytest.fixture
def request_of(tmp_path: Path) -> Callable[[Path], PredictionRequest]:
    lines = [
        f">r{n}\n{''.join(CODONS[(n * 7 + i * i) % 8] for i in range(60 + n))}\n"
        for n in range(RECORDS)
    ]
    source = tmp_path / "in.fa"
    source.write_text(">closed\nTAATTAATTAATTAATTAATTAA\n" + "".join(lines))

    def _request(classifier: Path) -> PredictionRequest:
        analysis = AnalysisSettings("custom", str(classifier), 200, 50, "toy", "toy")
        machine = MachineSettings(device="cpu", threads=1)
        return PredictionRequest(str(source), tmp_path / classifier.stem, analysis, machine)

    return _request


@pytest.fixture
def calibrated(tmp_path: Path) -> Path:
    """The toy classifier with a temperature that changes no score."""
    path = tmp_path / "calibrated.safetensors"
    path.write_bytes(with_temperature(TOY_CLASSIFIER, 1.0))
    return path


def _table(path: Path) -> list[dict[str, str]]:
    header, *rows = (line.split("\t") for line in path.read_text().splitlines())
    return [dict(zip(header, row, strict=True)) for row in rows]


def _computed(request: PredictionRequest) -> list[str]:
    events: list[Event] = []
    run_prediction(request, events.append)
    return [e.stage for e in events if isinstance(e, StageStarted) and e.todo]


def test_without_a_temperature_no_rate_is_given(
    request_of: Callable[[Path], PredictionRequest],
) -> None:
    request = request_of(TOY_CLASSIFIER)
    _computed(request)
    rows = _table(request.layout.contigs_table)
    assert list(rows[0])[-1] == "fdr"
    assert {row["fdr"] for row in rows} == {"NA"}


def test_with_a_temperature_every_scored_record_has_a_rate(
    request_of: Callable[[Path], PredictionRequest], calibrated: Path
) -> None:
    request = request_of(calibrated)
    _computed(request)
    rows = _table(request.layout.contigs_table)
    assert [row["record"] for row in rows if row["fdr"] == "NA"] == ["closed"]
    assert rows[0]["status"] == "no_open_frame"
    scores: dict[str, list[float]] = {row["record"]: [] for row in rows}
    for row in _table(request.layout.chunks_table):
        if row["status"] == "scored":
            others, virus = float(row["max_score_0"]), float(row["max_score_1"])
            scores[row["record"]].append(virus / (virus + others))
    flat = [p for found in scores.values() for p in found]
    expected = contig_fdr(np.array(flat), np.array([len(found) for found in scores.values()]))
    assert [float(row["fdr"]) for row in rows[1:]] == pytest.approx(expected[1:], abs=1e-6)
    assert len({row["fdr"] for row in rows}) > RECORDS / 2


def _as_version_1(layout: Layout, inputs: Sequence[Path]) -> None:
    """Make a finished run look as the stage of version 1 left it."""
    lines = layout.contigs_table.read_text().splitlines()
    layout.contigs_table.write_text("".join(f"{line.rpartition('	')[0]}\n" for line in lines))
    receipt = layout.receipt("output")
    document = unsealed(receipt.read_bytes())
    outputs = (layout.chunks_table, layout.contigs_table, layout.virus_fasta)
    old = Task("output", 1, tuple(inputs), outputs, receipt, {"chunk_length": 200})
    document["fingerprint"] = fingerprint(old, [sha256_of(path) for path in inputs])
    document["outputs"][1] |= {
        "bytes": layout.contigs_table.stat().st_size,
        "sha256": sha256_of(layout.contigs_table),
    }
    receipt.write_bytes(sealed(document))


def test_a_finished_run_of_the_older_stage_gets_the_column_and_nothing_else(
    request_of: Callable[[Path], PredictionRequest],
) -> None:
    request = request_of(TOY_CLASSIFIER)
    _computed(request)
    layout = request.layout
    new = layout.contigs_table.read_bytes()
    inputs = (
        Path(request.source),
        layout.records_table,
        layout.frames_table,
        layout.consensus,
    )
    _as_version_1(layout, inputs)
    assert b"fdr" not in layout.contigs_table.read_bytes()
    assert _computed(replace(request, resume=True)) == ["output"]
    assert layout.contigs_table.read_bytes() == new
    assert _computed(replace(request, resume=True)) == []


def test_a_temperature_of_one_is_another_result(tmp_path: Path) -> None:
    """The scores are the same, so only the task itself can tell."""
    from virnucpro.store.disk import Disk

    class Finished:
        def outputs(self, stage: str) -> tuple[OutputFile, ...]:
            return (OutputFile(tmp_path / "a", 0, "", 5), OutputFile(tmp_path / "b", 0, "", 1))

    layout = RunLayout(tmp_path, "in", 200)
    plans = [
        OutputStage(layout, Disk(), tmp_path / "in.fa", (0, 0), calibrated).plan(Finished())[0]  # type: ignore[arg-type]
        for calibrated in (False, True)
    ]
    assert len({fingerprint(task, []) for task in plans}) == 2


def test_the_header_ends_with_the_rate() -> None:
    assert CONTIGS.names[-2:] == ("status", "fdr")
