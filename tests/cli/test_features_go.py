"""Features go when they are scored: the same bytes, also after an interruption at any moment."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inputs import Stopped, Stopping, carried_out, open_bases, poisoned, toy_request
from tests.faults.survival import results
from virnucpro.errors import OutputError
from virnucpro.events import Event, StageStarted, TaskFinished
from virnucpro.io.frames import open_frames
from virnucpro.run import recipe
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest
from virnucpro.run.status import statuses
from virnucpro.stages import embedding
from virnucpro.store.lock import holder
from virnucpro.tables import FAILURES

FRAMES_PER_FILE = 20
FAILING = "r14_chunk_1F1"
COPIES = ["r64_chunk_1F1", "r74_chunk_1F1"]  # the same frame


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reads, of which some are the same; the first frame of each is open."""
    path = tmp_path_factory.mktemp("input") / "in.fa"
    reads = [open_bases(30 + n % 7, n) for n in range(60)]
    reads += 2 * reads[10:20]
    path.write_text("".join(f">r{n}\n{read}\n" for n, read in enumerate(reads)))
    return path


def _request(source: Path, out: Path, *, keep: bool = False) -> PredictionRequest:
    files = {"sequences_per_file": FRAMES_PER_FILE, "remove_intermediate": not keep}
    return toy_request(source, out, chunk_length=150, **files)


@pytest.fixture(scope="module")
def kept(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that was asked to keep its features, and then not to."""
    out = tmp_path_factory.mktemp("kept") / "out"
    run_prediction(_request(source, out, keep=True), lambda _: None)
    kinds = Counter(path.name.split("_", 2)[2] for path in out.rglob("output_*.pt"))
    assert len(set(kinds.values())) == 1
    assert set(kinds) == {"DNABERT_S.pt", "ESM.pt", "merged.pt"}
    assert not carried_out(_request(source, out)).pieces
    return out


def _features(out: Path) -> set[str]:
    """The names of the files of features."""
    return {path.name for path in out.rglob("output_*.pt")}


class AtOnce(ThreadPoolExecutor):
    """A thread that is through with its work when somebody looks."""

    def submit(self, *work: Any) -> Future[Any]:
        future = super().submit(*work)
        wait([future])
        return future


def test_features_are_gone_when_the_last_model_has_read_them(source, kept, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr(embedding, "round", lambda *_: 2.0, raising=False)  # seconds of waiting
    out = tmp_path / "out"
    left: dict[str, tuple[int, set[str]]] = {}
    each: list[int] = []
    request = _request(source, out)

    def watch(event: Event) -> None:
        if isinstance(event, StageStarted):
            left[event.stage] = event.todo, _features(out)
            assert holder(request.layout.lock) is not None
        elif isinstance(event, TaskFinished) and "protein_embeddings" in left:
            each.append(len(_features(out)))

    summary = run_prediction(request, watch)
    assert results(out) == results(kept)
    counts = summary.record["counts"]
    files = -(-(counts["frames"] - counts["identical_frames"]) // FRAMES_PER_FILE)
    names = {f"output_{number}_DNABERT_S.pt" for number in range(1, files + 1)}
    assert (left["protein_embeddings"], left["merging"]) == ((files, names), (files, set()))
    assert each[files - 1] < files  # those of most files went before the last one was finished
    embeddings = ("nucleotide_embeddings", "protein_embeddings")
    worked = {row["stage"]: row["tasks"] for row in summary.record["workers"]}
    assert worked == dict.fromkeys(embeddings, files)
    waited = summary.record["seconds_waited_for_tokens"]
    assert waited == dict.fromkeys(embeddings, 2.0 * files)


def test_a_run_that_is_finished_with_its_features_has_all_of_them(source, kept, tmp_path):
    """Those of the files that were scored before are made again."""
    kept_from_start, out = tmp_path / "whole", tmp_path / "out"
    run_prediction(_request(source, kept_from_start, keep=True), lambda _: None)
    with pytest.raises(Stopped):
        run_prediction(_request(source, out), lambda _: None, Stopping("prediction_results.txt"))
    assert _features(out) < _features(kept_from_start)
    run_prediction(_request(source, out, keep=True), lambda _: None)
    assert _features(out) == _features(kept_from_start)
    run_prediction(_request(source, out), lambda _: None)
    assert results(out) == results(kept)


@pytest.mark.parametrize("seed", range(3))
def test_stopped_at_random_moments_it_goes_on(source, kept, tmp_path, seed):
    """Some of the starts keep the features: that changes no byte of the results either."""
    chance = random.Random(seed)
    out = tmp_path / "out"
    stops = 0
    while True:
        try:
            request = _request(source, out, keep=chance.random() < 0.3)
            disk = Stopping(after=chance.randrange(10, 60))
            run_prediction(request, lambda _: None, disk)
            break
        except Stopped:
            stops += 1
            (status,) = statuses(out)
            assert status["state"] in ("interrupted", "finished")  # and not yet tidied up
    assert stops > 1
    summary = run_prediction(_request(source, out), lambda _: None)
    assert summary.computed == 0
    assert results(out) == results(kept)


@pytest.mark.parametrize(
    ("damaged", "again"),
    [
        (lambda layout: [layout.scores(2)], 1),
        (lambda layout: [layout.scores(2).with_suffix(".tsv.done")], 1),
        (lambda layout: [layout.receipt("chunking"), layout.receipt("splitting")], 0),
        (lambda layout: [layout.split("protein", 2)], 0),
    ],
    ids=["scores", "receipt", "receipts", "split file"],
)
def test_of_a_damaged_file_only_that_is_done_again(source, kept, tmp_path, damaged, again):
    request = _request(source, tmp_path / "out")
    layout = request.layout
    with pytest.raises(Stopped):
        run_prediction(request, lambda _: None, Stopping("prediction_results.txt"))
    assert not layout.features("nucleotide", 2).exists()
    assert [r["files_done"] for r in statuses(layout.root)[0]["stages"]][-3:] == [0, 0, 0]
    for path in damaged(layout):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    assert carried_out(request).pieces["protein_embeddings"] == again
    assert results(tmp_path / "out") == results(kept)


def test_a_disk_that_is_too_small_is_named_before_a_model_computes(source, tmp_path, monkeypatch):
    free = 20_000  # the features of all nucleotides need some bytes less
    usage = shutil._ntuple_diskusage(10**12, 10**12 - free, free)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OutputError):
        run_prediction(_request(source, tmp_path / "out", keep=True), lambda _: None)
    assert not _features(tmp_path / "out")
    run_prediction(_request(source, tmp_path / "out"), lambda _: None)


def test_failed_sequences_are_tried_again_and_the_others_are_not(source, kept, tmp_path):
    request = _request(source, tmp_path / "out")
    protein = open_frames([open_bases(30, 14)]).proteins[0]
    with poisoned(protein.__eq__):
        summary = run_prediction(request, lambda _: None)
    assert summary.failed_records == 3
    layout = request.layout
    assert len({name.split("_")[1] for name in _features(layout.root)}) == 1  # that of the frame
    (failure,) = FAILURES.read(layout.failed_table, "sequences")
    assert failure[0].split(",") == [FAILING, *COPIES]
    todo = carried_out(request).pieces
    assert (todo["nucleotide_embeddings"], todo["protein_embeddings"]) == (0, 1)
    assert results(layout.root) == results(kept)
