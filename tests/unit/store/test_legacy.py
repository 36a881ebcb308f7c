"""Runs of earlier versions: what is taken over, what is not and why, and stops in between."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.hostile import Evil
from tests.legacy_run import make_legacy, predict, results, write_old
from virnucpro.errors import NothingToResumeError, ResumeRefusedError, UsageError
from virnucpro.io.fasta import fasta_bytes, read_fasta
from virnucpro.layout import Layout
from virnucpro.store import legacy
from virnucpro.store.features import Features, load_features
from virnucpro.store.work import read_identity


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interrupted run: all three DNABERT-S files, two of three ESM files."""
    folder = tmp_path_factory.mktemp("interrupted")
    make_legacy(folder)
    return folder


@pytest.fixture
def interrupted(made: Path, tmp_path: Path) -> tuple[Path, Layout]:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "in.fa", Layout(tmp_path / "old", "in", 200)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, made: Path) -> dict[str, bytes]:
    """Results of a run of this version on the same input."""
    folder = tmp_path_factory.mktemp("ours")
    predict(made / "in.fa", folder / "out")
    return results(Layout(folder / "out", "in", 200))


def _origins(layout: Layout) -> dict[str, str]:
    paths = [*layout.root.rglob("*_DNABERT_S.pt.done"), *layout.root.rglob("*_ESM.pt.done")]
    return {path.name[:-8]: json.loads(path.read_text())["origin"] for path in paths}


def test_an_interrupted_run_is_finished(interrupted, expected):
    source, layout = interrupted
    before = {p: p.read_bytes() for p in legacy.feature_files(layout)}
    assert len(before) == 5
    shown = predict(source, layout.root, resume=True)
    assert (shown.pieces["nucleotide_embeddings"], shown.pieces["protein_embeddings"]) == (0, 1)
    assert results(layout) == expected
    assert before == {p: p.read_bytes() for p in before}
    origins = _origins(layout)
    assert origins.pop("output_3_ESM") == "computed"
    assert set(origins.values()) == {"legacy"}
    assert len([n for n in shown.notices if "precision they were computed in is unknown" in n]) == 2
    document = json.loads(layout.run_record.read_text())
    assert document["counts"]["feature_files_of_an_earlier_version"] == 5
    again = predict(source, layout.root, resume=True)
    assert not again.pieces.total()


def _features(change: Callable[[Features], Features]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        changed = change(load_features(path, "protein"))
        write_old(path, changed.ids, changed.data)

    return damage


def _evil(path: Path) -> None:
    torch.save({"proteins": ["a"], "data": Evil(path.parents[1] / "pwned")}, path)


def _sequence(path: Path) -> None:
    """One residue of the FASTA file beside it is another."""
    fasta = path.with_name("output_2.fa")
    records = list(read_fasta(fasta))
    name, text = records[4]
    records[4] = (name, ("A" if text[0] != "A" else "C") + text[1:])
    fasta.write_bytes(fasta_bytes(records))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "another order": _features(lambda f: Features(f.ids[::-1], f.data)),
    "an id less": _features(lambda f: Features(f.ids[1:], f.data[1:])),
    "another width": _features(lambda f: Features(f.ids, f.data[:, :7].contiguous())),
    "malicious": _evil,
    "another file": lambda p: shutil.copy(p.with_name("output_1_ESM.pt"), p),
    "FASTA gone": lambda p: p.with_name("output_2.fa").unlink(),
    "FASTA unreadable": lambda p: p.with_name("output_2.fa").write_bytes(b">\xff\xfe\n"),
    "other sequences": _sequence,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_what_proves_wrong_is_computed_again_with_the_reason(interrupted, expected, damage):
    source, layout = interrupted
    damage(layout.features("protein", 2))
    shown = predict(source, layout.root, resume=True)
    start = "output_2_ESM.pt of an earlier version is computed again: "
    told = [notice for notice in shown.notices if notice.startswith(start)]
    assert len(told) == (damage is not _sequence)  # that one has no notice
    assert (shown.pieces["nucleotide_embeddings"], shown.pieces["protein_embeddings"]) == (0, 2)
    assert results(layout) == expected
    assert not (layout.root / "pwned").exists()


def test_a_run_whose_state_was_damaged_later_is_taken_over_again(interrupted, expected):
    source, layout = interrupted
    predict(source, layout.root, resume=True)
    layout.state_file.write_text("damaged")
    with pytest.raises(UsageError, match="--resume"):
        predict(source, layout.root)
    assert not predict(source, layout.root, resume=True).pieces.total()
    assert results(layout) == expected


@pytest.mark.parametrize("state", ["gone", "of another input"])
def test_features_that_no_state_file_names_are_nobodys(interrupted, state):
    source, layout = interrupted
    text = layout.legacy_state.read_text()
    layout.legacy_state.write_text(text.replace("in_chunked", "other_chunked"))
    if state == "gone":
        layout.legacy_state.unlink()
    with pytest.raises(UsageError, match="is there already"):
        predict(source, layout.root, resume=True)
    assert len(list(layout.root.rglob("output_*.pt"))) == 5


def test_without_resume_it_is_refused_and_force_removes_it(interrupted, expected):
    source, layout = interrupted
    with pytest.raises(UsageError, match=r"already holds files of in .*earlier version.*--resume"):
        predict(source, layout.root)
    assert len(legacy.feature_files(layout)) == 5
    shown = predict(source, layout.root, force=True)
    assert (shown.pieces["nucleotide_embeddings"], shown.pieces["protein_embeddings"]) == (3, 3)
    assert read_identity(layout).exact_frames_per_file is None  # nothing of it is taken over
    assert results(layout) == expected
    assert not predict(source, layout.root).pieces.total()


def test_another_chunk_length_or_a_second_input_is_refused_before_anything_is_overwritten(
    interrupted,
):
    source, layout = interrupted
    mates = shutil.copy(source, source.with_name("mates.fa"))
    with pytest.raises(ResumeRefusedError, match="second input: was not set"):
        predict(source, layout.root, mates=str(mates), resume=True)
    with pytest.raises(ResumeRefusedError, match="interleaved: was off"):
        predict(source, layout.root, interleaved=True, resume=True)
    text = layout.legacy_state.read_text()
    layout.legacy_state.write_text(text.replace('"expected_length": 200', '"expected_length": 300'))
    with pytest.raises(ResumeRefusedError, match="chunk length: was 300, is 200"):
        predict(source, layout.root, resume=True)
    assert len(legacy.feature_files(layout)) == 5
    assert not layout.state.exists()


def test_a_finished_run_without_features_is_left_alone(tmp_path):
    source, layout = make_legacy(tmp_path, completed=True)
    for molecule in ("nucleotide", "protein"):
        shutil.rmtree(layout.folders[molecule])
    said = layout.legacy_state.read_text()
    layout.legacy_state.write_text(said.replace("completed", "failed", 1))
    assert legacy.may_take_over(layout, resume=True)
    layout.legacy_state.write_text(said)
    before = {p: p.stat().st_mtime_ns for p in layout.root.rglob("*")}
    with pytest.raises(
        NothingToResumeError, match=r"left as it is.*prediction_results.txt.*--force"
    ) as caught:
        predict(source, layout.root, resume=True)
    assert caught.value.exit_code == 0
    assert before == {p: p.stat().st_mtime_ns for p in layout.root.rglob("*")}
    shown = predict(source, layout.root, force=True)
    assert (shown.pieces["nucleotide_embeddings"], shown.pieces["protein_embeddings"]) == (3, 3)
