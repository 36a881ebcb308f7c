"""Runs that do not keep features: bounded disk, and the same bytes, also after an interruption."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.poisoned import PoisonedExecutor
from tests.forked import run_forked
from virnucpro.contracts import Device
from virnucpro.errors import OutputError, UsageError
from virnucpro.events import Event, Notice, StageStarted
from virnucpro.executors.executor import LocalPool
from virnucpro.run import engine
from virnucpro.run.predict import run_prediction
from virnucpro.run.request import PredictionRequest
from virnucpro.run.sample_list import Sample
from virnucpro.run.samples import predict_samples
from virnucpro.run.status import statuses
from virnucpro.settings import AnalysisSettings, MachineSettings
from virnucpro.store.disk import Disk
from virnucpro.tables import FAILURES

FRAMES_PER_FILE = 20
FRAMES_PER_WINDOW = 70  # three files
FAILING = "r14_chunk_1F1"
COPIES = ["r61_chunk_1F1", "r64_chunk_1F1"]  # the same frame
PURPOSE = "they are not kept, but removed when they are scored"


class Stopped(BaseException):
    """Ends a run at an event."""


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MOST_FRAMES", FRAMES_PER_WINDOW)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reads, of which some are the same; the first frame of each is open."""
    path = tmp_path_factory.mktemp("input") / "in.fa"
    codons = ["GCT", "ACC", "GGA", "TTC", "CAT", "AAG", "CTG", "GAT"]
    chance = random.Random(6)
    reads = ["".join(chance.choices(codons, k=30 + n % 7)) for n in range(60)]
    reads += chance.choices(reads, k=20)
    path.write_text("".join(f">r{n}\n{read}\n" for n, read in enumerate(reads)))
    return path


def _request(
    source: Path, out: Path, *, no_features: bool = True, keep: bool = False
) -> PredictionRequest:
    analysis = AnalysisSettings("toy", chunk_length=150, sequences_per_file=FRAMES_PER_FILE)
    machine = MachineSettings(
        device="cpu", threads=1, no_features=no_features, remove_intermediate=not keep
    )
    return PredictionRequest(str(source), out, analysis, machine)


@pytest.fixture(scope="module")
def kept(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the defaults."""
    out = tmp_path_factory.mktemp("kept") / "out"
    events: list[Event] = []
    run_prediction(_request(source, out, no_features=False), events.append)
    assert not any(PURPOSE in e.message for e in events if isinstance(e, Notice))
    return out


def _results(out: Path) -> dict[str, bytes]:
    """All files that are left, but those that tell times; of receipts and archives the names."""
    return {
        path.relative_to(out).as_posix(): b"" if ".checkpoints" in path.parts else path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file()
        and not path.name.endswith(("_run.json", "_report.html", "run.log", ".lock", ".yours"))
    }


def _features(out: Path) -> int:
    """The number of split files that have features."""
    names = [p.name.split("_")[1] for p in out.rglob("output_*.pt") if "scores" not in p.name]
    return len(set(names))


def test_the_results_are_the_same_and_features_of_one_window_exist(
    source: Path, kept: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    most = 0
    messages: list[str] = []
    started: Counter[str] = Counter()
    left: list[int | None] = []

    def watch(event: Event) -> None:
        nonlocal most
        most = max(most, _features(out))
        if isinstance(event, Notice):
            messages.append(event.message)
        if isinstance(event, StageStarted):
            started[event.stage] += 1
            if event.stage == "protein_embeddings":
                left.append(next(a.sequences for a in event.ahead if a.stage == event.stage))

    summary = run_prediction(_request(source, out), watch)
    assert _results(out) == _results(kept)
    assert most <= 4  # three files, and the last one, which is smaller
    assert len([text for text in messages if PURPOSE in text]) == 1
    assert started["nucleotide_embeddings"] == started["scoring"] == len(left) > 2
    assert (left[-1], left == sorted(left, key=lambda n: -(n or 0))) == (0, True)
    record = json.loads((out / "in_run.json").read_bytes())
    assert set(record["seconds"]) >= {"protein_embeddings", "scoring", "prediction"}
    counts = record["counts"]
    assert counts == summary.record["counts"]
    files = -(-(counts["frames"] - counts["identical_frames"]) // FRAMES_PER_FILE)
    assert {row["stage"]: row["tasks"] for row in record["workers"]} == {
        "nucleotide_embeddings": files,
        "protein_embeddings": files,
    }


def test_two_workers_and_the_option(source: Path, kept: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "c.yaml").write_text(f"prediction: {{sequences_per_file: {FRAMES_PER_FILE}}}\n")
    words = ("predict", source, "-o", out, "-m", "toy", "-e", "150", "-c", tmp_path / "c.yaml")
    done = run_forked(*words, "--no-features", "--cpu-workers", "2")
    assert (done.code, PURPOSE in done.err) == (0, True), done.err
    assert _results(out) == _results(kept)
    again = run_forked(*words)
    assert "Nothing to compute" in again.out
    with pytest.raises(UsageError):
        _request(source, out, keep=True)


def _cells(path: Path) -> list[str]:
    return path.read_text().split()


def test_copies_have_the_scores_of_a_run_that_embeds_each(
    source: Path, kept: Path, tmp_path: Path
) -> None:
    request = _request(source, tmp_path / "out", no_features=False)
    each = replace(request, analysis=replace(request.analysis, dedup=False))
    summary = run_prediction(each, lambda _: None)
    assert "identical_frames" not in summary.record["counts"]
    for name in ("in_chunks.tsv", "in_contigs.tsv", "in_merged/prediction_results.txt"):
        ours, theirs = _cells(kept / name), _cells(tmp_path / "out" / name)
        for our, their in zip(ours, theirs, strict=True):
            assert our == their or abs(float(our) - float(their)) < 1e-5


class StoppingDisk(Disk):
    """Ends the run at its ``last``-th change of the disk, as a kill would."""

    def __init__(self, root: Path, last: int) -> None:
        super().__init__(root)
        self.left = last

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Stopped

    def rename(self, old: Path, new: Path) -> None:
        self._count()
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._count()
        super().unlink(path)


def test_killed_while_it_tidies_up_it_leaves_nothing(
    source: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear = Disk.clear

    def killed(disk: Disk, path: Path) -> None:
        if path.name.endswith("_scores.pt"):
            raise Stopped
        clear(disk, path)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "clear", killed)
        with pytest.raises(Stopped):
            run_prediction(_request(source, tmp_path / "out"), lambda _: None)
    assert list((tmp_path / "out").rglob("*_scores.pt"))
    run_prediction(_request(source, tmp_path / "out"), lambda _: None)
    assert _results(tmp_path / "out") == _results(kept)


@pytest.mark.parametrize("seed", range(3))
def test_stopped_at_random_moments_it_goes_on(
    source: Path, kept: Path, tmp_path: Path, seed: int
) -> None:
    """Some of the starts ask for features that are kept: that changes no byte either."""
    chance = random.Random(seed)
    out = tmp_path / "out"
    stops = 0
    while True:
        try:
            request = _request(source, out, no_features=not stops or chance.random() < 0.7)
            disk = StoppingDisk(out, chance.randrange(20, 120))
            run_prediction(request, lambda _: None, disk)
            break
        except Stopped:
            stops += 1
            (status,) = statuses(out)
            assert status["state"] in ("interrupted", "finished")  # and not yet tidied up
    assert stops > 1
    assert _results(out) == _results(kept)
    summary = run_prediction(_request(source, out), lambda _: None)
    assert summary.computed == 0


def _stopped_in(request: PredictionRequest, stage: str, window: int) -> None:
    started: Counter[str] = Counter()

    def stop(event: Event) -> None:
        if isinstance(event, StageStarted):
            started[event.stage] += 1
            if started[stage] == window:
                raise Stopped

    with pytest.raises(Stopped):
        run_prediction(request, stop)


def _computed(request: PredictionRequest) -> dict[str, int]:
    todo: Counter[str] = Counter()

    def count(event: Event) -> None:
        if isinstance(event, StageStarted):
            todo[event.stage] += event.todo

    run_prediction(request, count)
    return todo


@pytest.mark.parametrize("damage", ["scores", "receipt", "receipts", "split file"])
def test_of_a_damaged_file_only_that_is_done_again(
    source: Path, kept: Path, tmp_path: Path, damage: str
) -> None:
    request = _request(source, tmp_path / "out")
    _stopped_in(request, "nucleotide_embeddings", 2)
    layout = request.layout
    files = len(list(layout.folders["protein"].glob("output_*.fa")))
    scores = layout.features("scores", 2)
    paths: dict[str, tuple[Path, ...]] = {
        "scores": (scores,),
        "receipt": (scores.with_name(f"{scores.name}.done"),),
        "receipts": layout.receipt_files,
        "split file": (layout.split("protein", 2),),
    }
    for path in paths[damage]:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    again = {"scores": 1, "receipt": 1, "receipts": 3, "split file": 0}[damage]
    assert _computed(request)["protein_embeddings"] == files - 3 + again
    assert _results(tmp_path / "out") == _results(kept)


def test_a_run_with_features_goes_on_without_them(source: Path, kept: Path, tmp_path: Path) -> None:
    _stopped_in(_request(source, tmp_path / "out", no_features=False), "merging", 1)
    todo = _computed(_request(source, tmp_path / "out"))
    assert todo["protein_embeddings"] == 0
    assert todo["scoring"] == todo["merging"] > 3
    assert _results(tmp_path / "out") == _results(kept)
    shutil.copytree(kept, tmp_path / "finished")
    assert not any(_computed(_request(source, tmp_path / "finished")).values())


@pytest.fixture
def little_space(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets how many bytes of the disk seem to be free."""

    def _set(free: int) -> None:
        usage = shutil._ntuple_diskusage(10**12, 10**12 - free, free)  # type: ignore[attr-defined]
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)

    return _set


def test_a_disk_that_is_too_small_decides_it(
    source: Path, kept: Path, tmp_path: Path, little_space: Callable[[int], None]
) -> None:
    _stopped_in(_request(source, tmp_path / "out", no_features=False), "nucleotide_embeddings", 1)
    little_space(40_000)
    messages: list[str] = []
    most = 0

    def watch(event: Event) -> None:
        nonlocal most
        most = max(most, _features(tmp_path / "out"))
        if isinstance(event, Notice):
            messages.append(event.message)

    with pytest.raises(OutputError):  # features that are asked for
        run_prediction(_request(source, tmp_path / "out", no_features=False, keep=True), watch)
    run_prediction(_request(source, tmp_path / "out", no_features=False), watch)
    assert most == 1  # an eighth of the space holds no file, and one is taken in any case
    assert len([text for text in messages if PURPOSE in text]) == 1
    assert _results(tmp_path / "out") == _results(kept)
    little_space(100)
    with pytest.raises(OutputError):
        run_prediction(_request(source, tmp_path / "full"), lambda _: None)


def test_failed_sequences_are_tried_again_and_the_others_are_not(
    source: Path, kept: Path, tmp_path: Path
) -> None:
    request = _request(source, tmp_path / "out")
    executor = PoisonedExecutor(LocalPool([Device("cpu")]), (FAILING,), 0.0)
    summary = run_prediction(request, lambda _: None, executor=executor)
    assert summary.failed_records == 3
    layout = request.layout
    assert _features(layout.root) == 1  # those of the file with the failure
    (failure,) = FAILURES.read(layout.failed_table, "sequences")
    assert failure[0].split(",") == [FAILING, *COPIES]
    todo = _computed(request)
    assert (todo["nucleotide_embeddings"], todo["scoring"]) == (0, 1)
    assert _results(layout.root) == _results(kept)


def test_several_samples_share_their_windows(source: Path, kept: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.fa"
    other.write_text("".join(source.read_text().splitlines(keepends=True)[:40]))
    samples = [Sample("a", str(source)), Sample("b", str(other))]
    started: Counter[str] = Counter()

    def watch(event: Event) -> None:
        if isinstance(event, StageStarted):
            started[event.stage] += 1

    predict_samples(_request(source, tmp_path), samples, tmp_path / "out", watch)
    assert [sample.state for sample in samples] == ["finished", "finished"]
    assert _results(tmp_path / "out/a") == _results(kept)
    frames = sum(
        json.loads((tmp_path / f"out/{name}_run.json").read_bytes())["counts"]["frames"]
        for name in ("a/in", "b/other")
    )
    assert started["nucleotide_embeddings"] <= -(-frames // (FRAMES_PER_WINDOW - 20))
