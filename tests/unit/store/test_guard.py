"""Whether existing files are the same work, and what the command may do then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from virnucpro.errors import ResumeRefusedError, UsageError
from virnucpro.store.disk import Disk
from virnucpro.store.guard import Admission, ExistingWork, WorkIdentity, admit_work, files_in

WANTED = WorkIdentity("the run of s.fa", {"input": "a" * 64, "chunk length": 500, "lengths": [1]})


@pytest.fixture
def empty(tmp_path: Path) -> ExistingWork:
    return ExistingWork(tmp_path, tmp_path / ".checkpoints/s.previous")


@pytest.fixture
def own(empty: ExistingWork) -> ExistingWork:
    (empty.place / "s_contigs.tsv").write_text("own")
    (empty.place / "s_protein").mkdir()
    (empty.place / "s_protein/output_1.fa").write_text("own")
    files = [empty.place / "s_contigs.tsv", empty.place / "s_protein"]
    return replace(empty, own_files=files, identity=WANTED)


@pytest.fixture
def foreign(empty: ExistingWork) -> ExistingWork:
    (empty.place / "s_protein.faa").write_text("mine")
    return replace(empty, foreign_files=[empty.place / "s_protein.faa"])


def _admit(existing: ExistingWork, wanted: WorkIdentity = WANTED, **flags: bool) -> Admission:
    return admit_work(wanted, existing, Disk(), **flags)


def test_an_empty_place_is_free(empty: ExistingWork) -> None:
    assert _admit(empty) == Admission("start")
    assert _admit(empty, force=True) == Admission("start")
    resumed = _admit(empty, resume=True)
    assert resumed.decision == "start"
    assert "starting from the beginning" in str(resumed.notice)


@pytest.mark.parametrize("resume", [False, True])
def test_unfinished_work_goes_on_and_finished_work_is_checked(
    own: ExistingWork, resume: bool
) -> None:
    unfinished = _admit(own, resume=resume)
    assert unfinished == Admission("continue", "going on with the run of s.fa")
    finished = _admit(replace(own, finished=True), resume=resume)
    assert finished.decision == "finished"
    assert "the run of s.fa is finished" in str(finished.notice)


def test_work_without_a_readable_identity_goes_on(own: ExistingWork) -> None:
    assert _admit(replace(own, identity=None)).decision == "continue"


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "row"),
    [
        ("chunk length", 300, "chunk length: was 500, is 300"),
        ("input", "b" * 64, "input: was sha256 aaaaaaaaaaaa..., is sha256 bbbbbbbbbbbb..."),
        ("precision", "fp32", "precision: was not set, is fp32"),
    ],
)
def test_another_identity_is_refused_and_the_change_is_named(
    own: ExistingWork, resume: bool, name: str, value: object, row: str
) -> None:
    wanted = replace(WANTED, settings={**WANTED.settings, name: value})
    with pytest.raises(ResumeRefusedError) as caught:
        _admit(own, wanted, resume=resume)
    assert row in str(caught.value)
    assert "--force" in str(caught.value)
    assert (own.place / "s_contigs.tsv").read_text() == "own"


@pytest.mark.parametrize(
    ("was", "now", "row"),
    [
        (["a", "b"], ("b", "c", "d"), "files: no longer a; now also c, d"),
        (["a"], ["a", "b"], "files: now also b"),
        (["a", "b"], ["b", "a"], "files: in another order"),
        (["a"], [1], r'files: was ["a"], is [1]'),
    ],
)
def test_of_lists_of_names_only_the_change_is_named(
    own: ExistingWork, was: list[str], now: Sequence[object], row: str
) -> None:
    earlier = replace(own, identity=replace(WANTED, settings={"files": was}))
    with pytest.raises(ResumeRefusedError) as caught:
        _admit(earlier, replace(WANTED, settings={"files": now}))
    assert f"\n  {row}\n" in str(caught.value)


def test_a_setting_that_only_the_earlier_work_knows_is_a_change(own: ExistingWork) -> None:
    wanted = replace(WANTED, settings={"input": "a" * 64, "chunk length": 500})
    with pytest.raises(ResumeRefusedError, match=r"lengths: was \[1\], is not set"):
        _admit(own, wanted)


def test_a_tuple_is_the_list_that_json_makes_of_it(own: ExistingWork) -> None:
    wanted = replace(WANTED, settings={**WANTED.settings, "lengths": (1,)})
    assert _admit(own, wanted).decision == "continue"


def test_the_label_alone_is_no_difference(own: ExistingWork) -> None:
    assert _admit(own, replace(WANTED, label="the run of moved/s.fa")).decision == "continue"


@pytest.mark.parametrize("resume", [False, True])
def test_foreign_files_are_refused_and_named(foreign: ExistingWork, resume: bool) -> None:
    with pytest.raises(UsageError, match=r"s_protein\.faa.*--output-dir.*--force") as caught:
        _admit(foreign, resume=resume)
    assert caught.value.exit_code == 64
    assert (foreign.place / "s_protein.faa").read_text() == "mine"


def test_foreign_files_are_refused_beside_our_own(own: ExistingWork, foreign: ExistingWork) -> None:
    with pytest.raises(UsageError, match=r"s_protein\.faa"):
        _admit(replace(own, foreign_files=foreign.foreign_files))


def test_of_many_foreign_files_some_are_named(empty: ExistingWork) -> None:
    folder = empty.place / "s_protein"
    folder.mkdir()
    for number in range(12):
        (folder / f"output_{number:02d}.fa").touch()
    with pytest.raises(UsageError, match=r"output_04\.fa and 7 more"):
        _admit(replace(empty, foreign_files=[folder]))


def test_force_keeps_the_latest_own_work(own: ExistingWork) -> None:
    for content in ("first", "second"):
        (own.place / "s_protein").mkdir(exist_ok=True)
        (own.place / "s_contigs.tsv").write_text(content)
        admission = _admit(own, force=True)
        assert admission.decision == "start"
        assert str(own.previous) in str(admission.notice)
    assert [path.name for path in own.previous.parent.iterdir()] == [own.previous.name]
    assert (own.previous / "s_contigs.tsv").read_text() == "second"
    assert not (own.place / "s_contigs.tsv").exists()


def test_force_never_removes_foreign_files(foreign: ExistingWork) -> None:
    for content in ("first", "second"):
        (foreign.place / "s_protein.faa").write_text(content)
        assert _admit(foreign, force=True).decision == "start"
    kept = sorted(foreign.previous.parent.rglob("s_protein.faa"))
    assert [path.read_text() for path in kept] == ["first", "second"]


def test_force_goes_on_with_a_move_that_was_cut_short(own: ExistingWork) -> None:
    moving = own.previous.with_name(f"{own.previous.name}.moving")
    (moving / "s_protein").mkdir(parents=True)
    (moving / "s_protein/output_1.fa").write_text("older")
    _admit(own, force=True)
    assert (own.previous / "s_protein/output_1.fa").read_text() == "own"
    assert not moving.exists()


def test_links_count_as_files_and_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "dead").symlink_to(tmp_path / "nowhere")
    names = ("folder", "empty", "link", "dead", "missing")
    found = files_in([tmp_path / name for name in names])
    assert [path.name for path in found] == ["file", "link", "dead"]
