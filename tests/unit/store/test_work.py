"""Whether existing files are the same work, and what the command may do then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from virnucpro.errors import ResumeRefusedError, UsageError
from virnucpro.store.disk import Disk
from virnucpro.store.work import Decision, ExistingWork, WorkIdentity, check_work

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


def _check(existing: ExistingWork, wanted: WorkIdentity = WANTED, **flags: bool) -> Decision:
    return check_work(wanted, existing, Disk(), **flags)


def test_an_empty_place_is_free(empty: ExistingWork) -> None:
    assert _check(empty) == ("start", None)
    assert _check(empty, force=True) == ("start", None)
    resumed = _check(empty, resume=True)
    assert resumed[0] == "start"
    assert "starting from the beginning" in str(resumed[1])


@pytest.mark.parametrize("resume", [False, True])
def test_unfinished_work_goes_on_and_finished_work_is_checked(
    own: ExistingWork, resume: bool
) -> None:
    unfinished = _check(own, resume=resume)
    assert unfinished == ("continue", "going on with the run of s.fa")
    finished = _check(replace(own, finished=True), resume=resume)
    assert finished[0] == "finished"
    assert "the run of s.fa is finished" in str(finished[1])


LONG = ["x" * 300]


@pytest.mark.parametrize(
    ("change", "row"),
    [
        ({"chunk length": 300}, "chunk length: was 500, is 300"),
        ({"input": "b" * 64}, "input: was sha256 aaaaaaaaaaaa..., is sha256 bbbbbbbbbbbb..."),
        ({"precision": "fp32"}, "precision: was not set, is fp32"),
        ({"lengths": LONG}, f'lengths: was [1], is ["{"x" * 198}...'),
        ({"lengths": ...}, "lengths: was [1], is not set"),
        ({"lengths": (1,)}, None),  # a tuple is the list that JSON makes of it
    ],
)
def test_another_identity_is_refused_and_the_change_is_named(
    own: ExistingWork, change: dict[str, object], row: str | None
) -> None:
    settings = {n: v for n, v in {**WANTED.settings, **change}.items() if v is not ...}
    wanted = replace(WANTED, label="the run of moved/s.fa", settings=settings)
    if row is None:
        assert _check(own, wanted)[0] == "continue"
        return
    with pytest.raises(ResumeRefusedError, match="--force") as caught:
        _check(own, wanted)
    assert f"\n  {row}\n" in str(caught.value)
    assert (own.place / "s_contigs.tsv").read_text() == "own"


@pytest.mark.parametrize("resume", [False, True])
def test_foreign_files_are_refused_and_some_are_named(
    empty: ExistingWork, own: ExistingWork, resume: bool
) -> None:
    mine = own.place / "s_protein.faa"
    mine.write_text("mine")
    folder = own.place / "other"
    folder.mkdir()
    for number in range(12):
        (folder / f"output_{number:02d}.fa").touch()
    for existing, named in (
        (replace(empty, foreign_files=[mine]), r"s_protein\.faa.*--output-dir.*--force"),
        (replace(own, foreign_files=[mine]), r"s_protein\.faa"),
        (replace(own, foreign_files=[folder]), r"output_04\.fa and 7 more"),
    ):
        with pytest.raises(UsageError, match=named) as caught:
            _check(existing, resume=resume)
        assert caught.value.exit_code == 64
    assert mine.read_text() == "mine"


def test_force_keeps_the_latest_own_work(own: ExistingWork) -> None:
    for content in ("first", "second"):
        (own.place / "s_protein").mkdir(exist_ok=True)
        (own.place / "s_contigs.tsv").write_text(content)
        found = _check(own, force=True)
        assert found[0] == "start"
        assert str(own.previous) in str(found[1])
    assert [path.name for path in own.previous.parent.iterdir()] == [own.previous.name]
    assert (own.previous / "s_contigs.tsv").read_text() == "second"
    assert not (own.place / "s_contigs.tsv").exists()


def test_force_never_removes_foreign_files(own: ExistingWork) -> None:
    """Also where two of them have one name, in folders of the run."""
    names = ("s.faa", "s_protein/output_1.fa", "s_nucleotide/output_1.fa")
    files = [own.place / name for name in names]
    for content in ("first", "second"):
        for path in files:
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{content} {path.parent.name}")
        folders = [path.parent for path in files[1:]]
        existing = replace(own, foreign_files=files, own_files=folders)
        assert _check(existing, force=True)[0] == "start"
    kept = sorted(p.read_text() for p in own.previous.parent.rglob("*.fa*"))
    parents = sorted(path.parent.name for path in files)
    assert kept == sorted(
        f"{content} {name}" for content in ("first", "second") for name in parents
    )


def test_force_goes_on_with_a_move_that_was_cut_short(own: ExistingWork) -> None:
    first, *others = own.own_files
    own.previous.mkdir(parents=True)
    first.rename(own.previous / first.name)
    _check(replace(own, own_files=others), force=True)
    names = {path.name for path in own.own_files}
    assert {path.name for path in own.previous.iterdir()} == names
