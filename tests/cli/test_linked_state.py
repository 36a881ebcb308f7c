"""State behind a symbolic link is refused before anything is written.

``tests/cli/test_own_files.py`` has the links in the folder of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.training.made_genomes import coding, write_fasta, write_table


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, tuple[object, ...]]:
    """Commands that write into ``tmp_path / "out"``, by the name of a file that they make there."""
    out, genomes = tmp_path / "out", tmp_path / "genomes"
    rows = []
    for seed, (name, label) in enumerate((("v", "virus"), ("b", "others"))):
        write_fasta(genomes / f"{name}.fa", [(name, coding(seed, 3000))])
        rows.append({"file": f"{name}.fa", "label": label, "group": name})
    table = write_table(genomes / "genomes.tsv", rows)
    return {
        "dataset.json": ("train", "prepare", table, "-o", out, "-e", 300),
        "virnucpro.yaml": ("utils", "generate-config", "-o", out / "virnucpro.yaml"),
    }


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("name", ["dataset.json", "virnucpro.yaml"])
def test_linked_state_is_refused_before_anything_is_written(
    call: Callable,
    commands: dict[str, tuple[object, ...]],
    tmp_path: Path,
    name: str,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "notes").write_text("mine")
    link = tmp_path / "out/.checkpoints"
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    before = _snapshot(tmp_path)
    for force in ((), ("--force",)):
        assert call(*commands[name], *force).code in (3, 6)
        assert _snapshot(tmp_path) == before
        assert link.is_symlink()


def test_a_linked_lock(
    call: Callable, commands: dict[str, tuple[object, ...]], tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    link = tmp_path / "out/.checkpoints/dataset.json.lock"
    link.parent.mkdir(parents=True)
    link.symlink_to(mine)
    assert call(*commands["dataset.json"]).code == 6
    assert mine.read_text() == "mine"


def test_a_linked_folder_of_results_is_followed(
    call: Callable, commands: dict[str, tuple[object, ...]], tmp_path: Path
) -> None:
    """Users put results on another disk in this way."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    done = call(*commands["dataset.json"])
    assert done.code == 0, done.err
    assert (tmp_path / "elsewhere/dataset.json").exists()
