"""Whether a run may go on in a directory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from virnucpro.errors import LockedError, ResumeRefusedError, UsageError
from virnucpro.layout import Layout
from virnucpro.store.disk import Disk
from virnucpro.store.lock import locked
from virnucpro.store.state import RunState, admit, write_state

STATE = RunState("/data/s.fa", {"input": "a" * 64, "chunk length": 500, "precision": "fp32"})


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path, "s", 500)


@pytest.fixture
def begun(layout: Layout) -> Layout:
    write_state(layout, Disk(), STATE)
    layout.contigs_table.write_text("old")
    return layout


def _admit(layout: Layout, state: RunState = STATE, **flags: bool) -> str | None:
    return admit(layout, Disk(), state, **{"resume": False, "force": False, **flags})


def test_an_empty_folder_is_free(layout: Layout) -> None:
    assert _admit(layout) is None
    assert "starting from the beginning" in str(_admit(layout, resume=True))


def test_another_stem_in_the_folder_is_no_hindrance(begun: Layout) -> None:
    assert _admit(replace(begun, stem="t")) is None


def test_results_are_not_overwritten(begun: Layout) -> None:
    with pytest.raises(UsageError, match=r"--resume.*--force"):
        _admit(begun)
    assert _admit(begun, resume=True) is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("chunk length", 300, "chunk length: was 500, is 300"),
        ("precision", "bf16", "precision: was fp32, is bf16"),
        ("input", "b" * 64, "input: was sha256 aaaaaaaaaaaa..., is sha256 bbbbbbbbbbbb..."),
    ],
)
def test_other_science_is_refused_and_named(
    begun: Layout, name: str, value: object, message: str
) -> None:
    state = RunState(STATE.source, {**STATE.analysis, name: value})
    with pytest.raises(ResumeRefusedError) as caught:
        _admit(begun, state, resume=True)
    assert message in str(caught.value)
    assert begun.contigs_table.read_text() == "old"


def test_another_input_of_the_same_name_is_refused_and_both_are_named(begun: Layout) -> None:
    state = RunState("/other/s.fa", {**STATE.analysis, "input": "b" * 64})
    for resume in (True, False):
        with pytest.raises(ResumeRefusedError, match=r"/data/s.fa, not /other/s.fa"):
            _admit(begun, state, resume=resume)


def test_a_moved_input_is_the_same_input(begun: Layout) -> None:
    assert _admit(begun, RunState("/moved/s.fa", STATE.analysis), resume=True) is None


def test_force_moves_everything_aside(begun: Layout) -> None:
    assert "starting over" in str(_admit(begun, force=True))
    assert not begun.owned()
    assert (begun.previous / begun.contigs_table.name).read_text() == "old"


def test_resume_and_force_start_over_only_where_resume_refuses(begun: Layout) -> None:
    assert _admit(begun, resume=True, force=True) is None
    assert begun.contigs_table.exists()
    other = RunState(STATE.source, {**STATE.analysis, "chunk length": 300})
    assert "starting over" in str(_admit(begun, other, resume=True, force=True))


def test_state_of_a_newer_version_is_refused(begun: Layout) -> None:
    document = json.loads(begun.run_state.read_text())
    begun.run_state.write_text(json.dumps({**document, "schema": 99}))
    with pytest.raises(ResumeRefusedError, match="newer version"):
        _admit(begun, resume=True)
    assert "starting over" in str(_admit(begun, force=True))


def test_a_link_in_place_of_the_state_is_refused(layout: Layout, tmp_path: Path) -> None:
    layout.checkpoints.mkdir()
    layout.state.symlink_to(tmp_path)
    with pytest.raises(ResumeRefusedError, match="symbolic link"):
        _admit(layout, resume=True)


def test_a_lock_excludes_and_names_its_owner(layout: Layout) -> None:
    message = r"process \d+ on .+, running since"
    with locked(layout.lock), pytest.raises(LockedError, match=message), locked(layout.lock):
        pass
    with locked(layout.lock):
        pass
