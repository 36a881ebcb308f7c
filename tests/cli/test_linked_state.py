"""Every command that keeps state refuses it behind a symbolic link, before it writes anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.inputs import PLAIN, TOY
from tests.records_data import make_records
from tests.training_data import make_dataset
from tests.unit.models.serving import Site, serving
from tests.unit.training.made_genomes import coding, write_fasta, write_table
from virnucpro.cli import run
from virnucpro.settings import TOY_CLASSIFIER, AnalysisSettings, MachineSettings
from virnucpro.training.embed import EmbedRequest, embed

NO_PROXY = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@dataclass(frozen=True)
class Command:
    """A command that keeps state.

    Attributes:
        words: what is written on the command line.
        state: all that it keeps in the checkpoint folder, and its savepoint, by whether they are
            folders.
        lock: the name of its lock; empty if it takes none.
    """

    words: tuple[object, ...]
    state: dict[str, bool]
    lock: str = ""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An embedded data set, a finished run, and a table of genomes; not to be changed."""
    home = tmp_path_factory.mktemp("inputs")
    dataset = make_dataset(home / "dataset", genomes=(4, 2, 2), codons=600)
    analysis = AnalysisSettings(model_type="toy").resolved()
    make_records(home / "records", genomes=(2, 1, 1), codons=300)
    embed(EmbedRequest(dataset.root, analysis, MachineSettings(device="cpu")), lambda event: None)
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
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A mirror of RefSeq with one file."""
    for name in NO_PROXY:
        monkeypatch.delenv(name, raising=False)
    with serving() as site:
        site.files["/RELEASE_NUMBER"] = b"231"
        listing = b"d41d8cd98f00b204e9800998ecf8427e\tviral.1.genomic.gbff.gz\n"
        site.files["/release-catalog/release231.files.installed"] = listing
        site.files["/viral/viral.1.genomic.gbff.gz"] = b""
        yield site


@pytest.fixture
def commands(inputs: Path, site: Site, tmp_path: Path) -> dict[str, Command]:
    """Commands that write into ``tmp_path / "out"``."""
    out = tmp_path / "out"
    classifier = out / "my.safetensors"
    calibrate = ("--calibrate", TOY_CLASSIFIER, "--output", classifier)
    predictions = inputs / "out"
    return {
        "train prepare": Command(
            ("train", "prepare", inputs / "genomes/genomes.tsv", "-o", out, "-e", 300),
            {"dataset.begun.json": False, "dataset.previous": True},
            "dataset.json.lock",
        ),
        "train classifier": Command(
            ("train", "classifier", inputs / "dataset", "-o", classifier, "--epochs", 1),
            {"my.safetensors.training.pt": False, "my.safetensors.previous": True},
            "my.safetensors.lock",
        ),
        "train lite": Command(
            ("train", "lite", inputs / "records", "-o", out, "--steps", 1, "--threads", 1),
            {"lite.previous": True, "../lite.savepoint.pt": False},
            "lite.json.lock",
        ),
        "train download": Command(
            ("train", "download", "--release-groups", "viral", "-o", out, "--mirror", site.address),
            {"refseq.tsv.begun.json": False},
            "refseq.tsv.lock",
        ),
        "evaluate": Command(
            (
                "evaluate",
                predictions,
                "--labels",
                inputs / "labels.tsv",
                "--output-dir",
                out,
                *calibrate,
            ),
            {
                "evaluation.begun.json": False,
                "evaluation.previous": True,
                "my.safetensors.previous": True,
            },
            "evaluation.json.lock",
        ),
        "generate-config": Command(
            ("utils", "generate-config", "-o", out / "virnucpro.yaml"),
            {"virnucpro.yaml.previous": True},
        ),
    }


NAMES = ["train prepare", "train classifier", "train lite", "train download", "evaluate"]
NAMES += ["generate-config"]
LOCKING = NAMES[:5]


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("dangling", [False, True], ids=["folder", "dangling"])
@pytest.mark.parametrize("force", [False, True], ids=["plain", "force"])
@pytest.mark.parametrize("name", NAMES)
def test_a_linked_checkpoint_folder(
    call: Callable,
    commands: dict[str, Command],
    tmp_path: Path,
    name: str,
    force: bool,
    dangling: bool,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    if not dangling:
        elsewhere.mkdir()
        (elsewhere / "notes").write_text("mine")
    link = tmp_path / "out/.checkpoints"
    link.parent.mkdir()
    link.symlink_to(elsewhere)
    _check_link_refused(call, commands[name], link, tmp_path, force=force)


@pytest.mark.parametrize("name", NAMES)
def test_linked_state(
    call: Callable, commands: dict[str, Command], tmp_path: Path, name: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    checkpoints = tmp_path / "out/.checkpoints"
    checkpoints.mkdir(parents=True)
    for kept, is_folder in commands[name].state.items():
        if is_folder:
            elsewhere.mkdir()
            (elsewhere / "notes").write_text("mine")
        else:
            elsewhere.write_text("mine")
        link = (checkpoints / kept).parent.resolve() / Path(kept).name
        link.symlink_to(elsewhere)
        _check_link_refused(call, commands[name], link, tmp_path, force=False)
        link.unlink()
        if is_folder:
            (elsewhere / "notes").unlink()
            elsewhere.rmdir()
        else:
            elsewhere.unlink()


def _check_link_refused(
    call: Callable, command: Command, link: Path, home: Path, *, force: bool
) -> None:
    words = command.words
    if force and words[:2] != ("train", "download"):
        words = (*words, "--force")
    before = _snapshot(home)
    done = call(*words)
    assert done.code == 3, done.err
    assert f"{link} is a symbolic link" in done.err
    assert "remove the link" in done.err
    assert _snapshot(home) == before
    assert link.is_symlink()


@pytest.mark.parametrize("name", LOCKING)
def test_a_linked_lock(
    call: Callable, commands: dict[str, Command], tmp_path: Path, name: str
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    link = tmp_path / "out/.checkpoints" / commands[name].lock
    link.parent.mkdir(parents=True)
    link.symlink_to(mine)
    done = call(*commands[name].words)
    assert done.code == 6, done.err
    assert "it is a symbolic link, which is not followed: remove it" in done.err
    assert mine.read_text() == "mine"


def test_a_linked_folder_of_results_is_followed(
    call: Callable, commands: dict[str, Command], tmp_path: Path
) -> None:
    """Users put results on another disk in this way."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    done = call(*commands["train prepare"].words)
    assert done.code == 0, done.err
    assert (tmp_path / "elsewhere/dataset.json").exists()
