"""``virnucpro rcl predict`` from the command line, with small models."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch

from virnucpro.layout import lock_file
from virnucpro.rcl.encodings import AMINO_ACIDS, RESIDUE_ENCODINGS
from virnucpro.rcl.finders import shipped_models
from virnucpro.rcl.model_files import write_rcl_model
from virnucpro.rcl.models import RclModel
from virnucpro.rcl.networks import NETWORKS
from virnucpro.rcl.predict import run_rcl_prediction
from virnucpro.store.disk import Disk, sha256_of
from virnucpro.store.documents import sealed, unsealed
from virnucpro.store.lock import locked
from virnucpro.store.work import WorkIdentity, save_identity


def protein(length: int, seed: int) -> str:
    return "".join(random.Random(seed).choices(AMINO_ACIDS, k=length))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A network that finds residues in runs of hydrophobic ones."""
    torch.manual_seed(0)
    network = NETWORKS["cnn"].module(21, channels=[4], kernel_sizes=[7])
    with torch.no_grad():
        weights = torch.tensor(
            [1.0 if letter in "AILMFVWC" else -0.4 for letter in AMINO_ACIDS] + [0]
        )
        network.conv_layers[0].conv.weight.copy_(weights[None, :, None].expand(4, 21, 7) / 3)
        network.output[0].weight.copy_(torch.tensor([[-2.0] * 4, [2.0] * 4])[..., None])
        network.output[0].bias.copy_(torch.tensor([2.0, -2.0]))
    path = tmp_path / "my_model.safetensors"
    settings = {"channels": [4], "kernel_sizes": [7]}
    write_rcl_model(path, RclModel(network.eval(), "cnn", settings, "onehot"), Disk())
    return path


LOOP = "AILMFVAILMFVAILMFVAI"
PROTEINS = {
    "with": "G" * 30 + LOOP + "D" * 30,
    "without": "GDEK" * 20,
    "short": "G" * 30 + "AILMFVAI" + "D" * 30,
    "empty": "",
    "tiny": "G",
    "long": "GDEK" * 600 + LOOP + "GDEK" * 100,
    "small": ("G" * 30 + LOOP + "D" * 30).lower(),
}


@pytest.fixture
def fasta(tmp_path: Path) -> Path:
    path = tmp_path / "some.proteins.fa"
    path.write_text("".join(f">{name} text\n{seq}\n" for name, seq in PROTEINS.items()))
    return path


def rows(path: Path) -> dict[str, list[str]]:
    return {line.split("\t")[0]: line.split("\t")[1:] for line in path.read_text().splitlines()[1:]}


def test_every_protein_has_a_row(call, tmp_path: Path, fasta: Path, model: Path) -> None:
    out = tmp_path / "out"
    result = call(
        "rcl", "predict", fasta, "-o", out, "-m", model, "-seq_fasta", "-RCL_fasta", "--residues"
    )
    assert result.code == 0, result.err
    assert re.match(
        r"my_model.safetensors:\w{8} found an RCL in 3 of 7 proteins \(42.9 %\)", result.out
    )
    assert sorted(path.name for path in out.iterdir() if path.is_file()) == [
        "some.proteins_onehot_RCL_only_thr0p50.fasta",
        "some.proteins_onehot_RCL_predictions_thr0p50.tsv",
        "some.proteins_onehot_with_RCL_thr0p50.fasta",
        "some.proteins_rcl.gff3",
        "some.proteins_rcl.tsv",
        "some.proteins_rcl_residues.tsv.gz",
        "some.proteins_rcl_run.json",
    ]
    table = rows(out / "some.proteins_rcl.tsv")
    assert {name: row[5] for name, row in table.items()} == {
        "with": "found",
        "without": "below_threshold",
        "short": "too_short",
        "empty": "empty",
        "tiny": "below_threshold",
        "long": "found",
        "small": "found",
    }
    length, start, end, loop, confidence, _, label = table["with"]
    assert (length, PROTEINS["with"][int(start) - 1 : int(end)]) == ("80", loop)
    assert set(loop) <= set(LOOP + "GD")
    assert 0.5 < float(confidence) <= 1
    assert label.startswith("my_model.safetensors:")
    assert table["small"][3] == loop.lower()
    assert int(table["long"][1]) - 2400 == pytest.approx(int(start) - 30, abs=2)
    positions = (out / "some.proteins_onehot_RCL_predictions_thr0p50.tsv").read_text()
    assert positions.splitlines()[:2] == [
        "Accession\tRCL_start_position\tRCL_end_position",
        f"with\t{start}\t{end}",
    ]
    sequences = (out / "some.proteins_onehot_with_RCL_thr0p50.fasta").read_text()
    assert sequences.startswith(f">with\n{PROTEINS['with']}\n>long\n{PROTEINS['long'][:80]}\n")
    loops = (out / "some.proteins_onehot_RCL_only_thr0p50.fasta").read_text()
    assert loops.startswith(f">with RCL {start} - {end}\n{loop}\n>long RCL ")
    gff = (out / "some.proteins_rcl.gff3").read_text().splitlines()
    assert gff[:2] == ["##gff-version 3", "##sequence-region with 1 80"]
    assert gff[2].split("\t")[:5] == ["with", "virnucpro", "polypeptide_region", start, end]
    with gzip.open(out / "some.proteins_rcl_residues.tsv.gz", "rt") as file:
        residues = file.read().splitlines()
    assert len(residues) == 1 + sum(map(len, PROTEINS.values()))
    assert [line.split("\t")[:3] for line in residues[1:3]] == [
        ["with", "1", "G"],
        ["with", "2", "G"],
    ]


def test_results_do_not_depend_on_how_proteins_are_grouped(
    call, tmp_path: Path, fasta: Path, model: Path
) -> None:
    tables = []
    for number, options in enumerate(([], ["--chunk-size", 2], ["--batch-size", 3])):
        out = tmp_path / f"out{number}"
        assert call("rcl", "predict", fasta, "-o", out, "-m", model, *options).code == 0
        tables.append((out / "some.proteins_rcl.tsv").read_text())
    assert tables[0] == tables[1] == tables[2]


def test_several_processes_write_the_same_bytes(
    call, tmp_path: Path, fasta: Path, model: Path
) -> None:
    """Two workers on the CPU stand for two GPUs."""
    files = []
    options = ("-m", model, "--chunk-size", 2, "--residues", "--seq-fasta", "--rcl-fasta", "-t", 2)
    for devices in (("--device", "cpu"), ("--cpu-workers", 2)):
        out = tmp_path / devices[0]
        done = call("rcl", "predict", fasta, "-o", out, *options, *devices)
        assert done.code == 0, done.err
        assert ("computing in 2 processes: CPU, CPU" in done.err) == ("--cpu-workers" in devices)
        paths = [path for path in out.iterdir() if path.is_file()]
        files.append({p.name: p.read_bytes() for p in paths if not p.name.endswith("run.json")})
    assert len(files[0]) == 6
    assert files[0] == files[1]
    record = json.loads((tmp_path / "--cpu-workers/some.proteins_rcl_run.json").read_text())
    assert '"devices": ["CPU", "CPU"]' in json.dumps(record)


def test_a_second_start_and_another_threshold(
    call, tmp_path: Path, fasta: Path, model: Path
) -> None:
    out = tmp_path / "out"
    arguments = ("rcl", "predict", fasta, "-o", out, "-m", model)
    assert call(*arguments).code == 0
    again = call(*arguments)
    assert again.code == 0
    assert "nothing to compute" in again.err
    assert "3 of 7 proteins" in again.out
    refused = call(*arguments, "--threshold", 0.6)
    assert refused.code == 3
    assert "threshold: was 0.5, is 0.6" in refused.err
    forced = call(*arguments, "--threshold", 0.6, "--force")
    assert forced.code == 0
    assert (out / "some.proteins_onehot_RCL_predictions_thr0p60.tsv").exists()
    assert not (out / "some.proteins_onehot_RCL_predictions_thr0p50.tsv").exists()
    (out / "some.proteins_rcl.gff3").unlink()  # is made again
    assert call(*arguments, "--threshold", 0.6).code == 0
    assert (out / "some.proteins_rcl.gff3").exists()


def test_a_record_that_names_files_elsewhere_moves_none_of_them(
    call, tmp_path: Path, fasta: Path, model: Path
) -> None:
    """Not even if its digest is right: somebody may have made it."""
    out, mine = tmp_path / "out", tmp_path / "mine.txt"
    mine.write_text("of the user\n")
    arguments = ("rcl", "predict", fasta, "-o", out, "-m", model)
    assert call(*arguments).code == 0
    record = out / "some.proteins_rcl_run.json"
    made = unsealed(record.read_bytes())
    files = {**made["files"], "../mine.txt": sha256_of(mine)}
    record.write_bytes(sealed(made | {"files": files}))
    assert call(*arguments, "--threshold", 0.6, "--force").code == 0
    assert mine.read_text() == "of the user\n"
    state = out / ".checkpoints" / "rcl" / "some.proteins"
    begun = WorkIdentity("the RCL prediction of it", {"files": ["../mine.txt", 7]})
    state.mkdir(parents=True, exist_ok=True)
    save_identity(state / "begun.json", begun, Disk())
    assert call(*arguments, "--threshold", 0.7, "--force").code == 0
    assert mine.read_text() == "of the user\n"


@pytest.mark.parametrize("finished", [False, True])
def test_files_of_the_user_are_not_overwritten(
    call, tmp_path: Path, fasta: Path, model: Path, finished: bool
) -> None:
    out = tmp_path / "out"
    arguments = ("rcl", "predict", fasta, "-o", out, "-m", model)
    if finished:
        assert call(*arguments).code == 0
    out.mkdir(exist_ok=True)
    names = ["rcl.tsv", "rcl_run.json", "onehot_RCL_predictions_thr0p50.tsv"]
    for name in names:
        (out / f"some.proteins_{name}").write_text("mine")
    refused = call(*arguments)
    assert refused.code == 64
    for name in names:
        assert name in refused.err
        assert (out / f"some.proteins_{name}").read_text() == "mine"
    assert call(*arguments, "--force").code == 0
    aside = [path for path in out.rglob("some.proteins_*") if ".checkpoints" in path.parts]
    assert sum(path.read_bytes() == b"mine" for path in aside) == 3


def test_a_link_is_not_followed(call, tmp_path: Path, fasta: Path, model: Path) -> None:
    out, target = tmp_path / "out", tmp_path / "target"
    out.mkdir()
    target.write_text("mine")
    (out / "some.proteins_rcl.tsv").symlink_to(target)
    assert call("rcl", "predict", fasta, "-o", out, "-m", model).code == 64
    assert target.read_text() == "mine"
    (out / "some.proteins_rcl.tsv").unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.rmtree(out / ".checkpoints", ignore_errors=True)
    (out / ".checkpoints").symlink_to(elsewhere)
    refused = call("rcl", "predict", fasta, "-o", out, "-m", model)
    assert refused.code == 3
    assert "symbolic link" in refused.err
    assert not list(elsewhere.iterdir())


def test_one_process_at_a_time(call, tmp_path: Path, fasta: Path, model: Path) -> None:
    out = tmp_path / "out"
    with locked(lock_file(out, "some.proteins_rcl"), "these proteins"):
        refused = call("rcl", "predict", fasta, "-o", out, "-m", model)
    assert refused.code == 5
    assert "is working on these proteins" in refused.err


def test_an_interruption_leaves_nothing_and_the_same_command_starts_again(
    call, tmp_path: Path, fasta: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    arguments = ("rcl", "predict", fasta, "-o", tmp_path / "out", "-m", model)
    with monkeypatch.context() as patch:
        patch.setattr(RclModel, "probabilities", interrupted)
        stopped = call(*arguments)
    assert stopped.code == 143
    assert "run the same command again" in stopped.err
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".checkpoints"]
    assert call(*arguments).code == 0


def test_standard_input_and_compression(
    call, tmp_path: Path, fasta: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "packed.faa.gz"
    packed.write_bytes(gzip.compress(fasta.read_bytes()))
    assert call("rcl", "predict", packed, "-o", tmp_path / "a", "-m", model).code == 0
    text = io.TextIOWrapper(io.BytesIO(packed.read_bytes()))
    monkeypatch.setattr(sys, "stdin", text)
    assert call("rcl", "predict", "-", "-o", tmp_path / "b", "-m", model).code == 0
    table = (tmp_path / "a" / "packed_rcl.tsv").read_text()
    assert table == (tmp_path / "b" / "stdin_rcl.tsv").read_text()
    assert not list((tmp_path / "b" / ".checkpoints").rglob("input*"))


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (">a\n" + "ACGT" * 30 + "\n", 65, "line 2, record 'a': looks like nucleotides"),
        (">a\nMK-L\n", 65, "line 2, record 'a': '-' is no amino acid"),
        (">a\nMKL\n>a\nMKLL\n", 65, "record ids occur more than once: a"),
        ("", 65, "no sequences"),
        ("MKL\n", 65, "text before the first '>'"),
    ],
)
def test_input_that_cannot_be_right(
    call, tmp_path: Path, model: Path, text: str, code: int, message: str
) -> None:
    path = tmp_path / "p.fa"
    path.write_text(text)
    result = call("rcl", "predict", path, "-o", tmp_path / "out", "-m", model)
    assert result.code == code
    assert message in result.err
    assert not list((tmp_path / "out").glob("p*"))


def test_duplicate_ids_are_renamed_on_request(call, tmp_path: Path, model: Path) -> None:
    path = tmp_path / "p.fa"
    path.write_text(">a\nMKL\n>a\nMKLL\n")
    arguments = ("rcl", "predict", path, "-o", tmp_path / "out", "-m", model)
    assert call(*arguments, "--duplicate-ids", "rename").code == 0
    assert list(rows(tmp_path / "out" / "p_rcl.tsv")) == ["a", "a_2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "no_such_model"], "neither a shipped model"),
        (["--threshold", "1.5"], "--threshold"),
        (["--batch-size", "0"], "--batch-size"),
        (["--min-consecutive", "9" * 23], "--min-consecutive"),
    ],
)
def test_wrong_options(
    call, tmp_path: Path, fasta: Path, arguments: list[str], message: str
) -> None:
    result = call("rcl", "predict", fasta, "-o", tmp_path / "out", *arguments)
    assert result.code == 64
    assert message in result.err


def test_an_encoding_that_needs_esm2_says_so(call, tmp_path: Path, fasta: Path) -> None:
    network = NETWORKS["cnn"].module(320, channels=[2], kernel_sizes=[3]).eval()
    path = tmp_path / "esm.safetensors"
    write_rcl_model(path, RclModel(network, "cnn", {}, "esm2_8m"), Disk())
    result = call("rcl", "predict", fasta, "-o", tmp_path / "out", "-m", path)
    assert result.code == 64
    assert "esm2_t6_8M_UR50D" in result.err


def test_the_record_says_what_ran(call, tmp_path: Path, fasta: Path, model: Path) -> None:
    out = tmp_path / "out"
    assert call("rcl", "predict", fasta, "-o", out, "-m", model).code == 0
    record = json.loads((out / "some.proteins_rcl_run.json").read_text())
    assert record["statuses"]["found"] == 3
    assert re.fullmatch("my_model.safetensors:[0-9a-f]{8}", record["model"]["name"])
    assert record["settings"]["min_consecutive"] == 12
    assert "1 protein with more than 1,024" in record["notices"][0]


def test_shipped_models_are_named_by_their_files() -> None:
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in shipped_models())
    assert all(name.split("_")[0] in (*RESIDUE_ENCODINGS, "hmm") for name in shipped_models())


class FullDisk(Disk):
    """A disk that is full after some bytes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, stream, data) -> None:
        self.room -= len(data)
        if self.room < 0:
            raise OSError(28, "No space left on device")
        super().write(stream, data)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, fasta: Path, model: Path) -> None:
    from virnucpro.contracts import Device
    from virnucpro.errors import OutputError
    from virnucpro.rcl.finders import open_finder
    from virnucpro.rcl.request import RclRequest

    class Silent:
        def begin(self, title: str, total: float) -> None: ...
        def advance(self, amount: float) -> None: ...

    out = tmp_path / "out"
    device = Device("cpu", 0, "CPU")
    for room in (0, 300, 700, 900, 1500, 2500):
        request = RclRequest(
            str(fasta),
            out,
            open_finder(str(model)),
            [device],
            {},
            sequences=True,
            residues=True,
        )
        with pytest.raises(OutputError, match="free some space"):
            run_rcl_prediction(request, Silent(), print, FullDisk(room))
        assert not [p for p in out.iterdir() if p.suffix == ".tmp"]
    summary = run_rcl_prediction(request, Silent(), print)
    assert summary.found == 3
