"""Every command that keeps state refuses it behind a symbolic link, before it writes anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.inputs import PLAIN, TOY
from tests.records_data import make_records
from tests.training_data import embed_toy, make_dataset
from tests.unit.training.made_genomes import coding, write_fasta, write_table
from virnucpro.cli import run
from virnucpro.settings import TOY_CLASSIFIER


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedded data set, a finished run, and a table of genomes; not to be changed."""
    home = tmp_path_factory.mktemp("inputs")
    dataset = make_dataset(home / "dataset", genomes=(4, 2, 2), codons=600)
    make_records(home / "records", genomes=(2, 1, 1), codons=300)
    embed_toy(dataset)
    (home / "sample.fa").write_bytes(PLAIN)
    assert run(list(map(str, ("predict", home / "sample.fa", "-o", home / "out", *TOY, "-q")))) == 0
    (home / "labels.tsv").write_text("record\tlabel\tgroup\tgenome\n")
    genomes = home / "genomes"
    write_fasta(genomes / "v.fa", [(f"V{n}", coding(n, 3000)) for n in range(4)])
    write_fasta(genomes / "b.fa", [(f"B{n}", coding(100 + n, 3000)) for n in range(4)])
    labels = {"v": "virus", "b": "others"}
    rows = [{"file": f"{name}.fa", "label": label, "group": name} for name, label in labels.items()]
    write_table(genomes / "genomes.tsv", rows)
    return home


@pytest.fixture
def commands(inputs: Path, tmp_path: Path) -> dict[str, tuple[object, ...]]:
    """Commands that write into ``tmp_path / "out"``, by the name of a file that they make there."""
    out = tmp_path / "out"
    table, labels = inputs / "genomes/genomes.tsv", inputs / "labels.tsv"
    calibrated = ("--calibrate", TOY_CLASSIFIER, "--output", out / "my.safetensors")
    return {
        "dataset.json": ("train", "prepare", table, "-o", out, "-e", 300),
        "my.safetensors": (
            *("train", "classifier", inputs / "dataset", "-o", out / "my.safetensors"),
            *("--epochs", 1),
        ),
        "lite.json": (
            *("train", "lite", inputs / "records", "-o", out, "--steps", 1, "--threads", 1),
        ),
        "evaluation.json": (
            *("evaluate", inputs / "out", "--labels", labels, "--output-dir", out, *calibrated),
        ),
        "virnucpro.yaml": ("utils", "generate-config", "-o", out / "virnucpro.yaml"),
    }


NAMES = ["dataset.json", "my.safetensors", "lite.json", "evaluation.json"]
NAMES += ["virnucpro.yaml"]
LOCKING = NAMES[:4]


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


CASES = [(name, ".checkpoints", force) for name in NAMES for force in ("", "--force")]
CASES += [(name, f".checkpoints/{name}.previous", "") for name in NAMES]
CASES += [("lite.json", "lite.savepoint.pt", "")]


@pytest.mark.parametrize("dangling", [False, True], ids=["folder", "dangling"])
@pytest.mark.parametrize(("name", "place", "force"), CASES)
def test_linked_state_is_refused_before_anything_is_written(
    call: Callable,
    commands: dict[str, tuple[object, ...]],
    tmp_path: Path,
    name: str,
    place: str,
    force: str,
    dangling: bool,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    if not dangling:
        elsewhere.mkdir()
        (elsewhere / "notes").write_text("mine")
    link = tmp_path / "out" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    before = _snapshot(tmp_path)
    assert call(*commands[name], *force.split()).code in (3, 6)
    assert _snapshot(tmp_path) == before
    assert link.is_symlink()


@pytest.mark.parametrize("name", LOCKING)
def test_a_linked_lock(
    call: Callable, commands: dict[str, tuple[object, ...]], tmp_path: Path, name: str
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    link = tmp_path / f"out/.checkpoints/{name}.lock"
    link.parent.mkdir(parents=True)
    link.symlink_to(mine)
    assert call(*commands[name]).code == 6
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
