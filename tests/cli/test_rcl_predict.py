"""``virnucpro rcl predict`` from the command line, with small models."""

import gzip
import io
import json
import sys

import pytest
import torch

from virnucpro.rcl.features import AMINO_ACIDS
from virnucpro.rcl.models import RclCnn, write_rcl_model
from virnucpro.rcl.settings import CnnSettings
from virnucpro.run.status import statuses
from virnucpro.store.disk import Disk

LOOP = "AILMFVAILMFVAILMFVAI"
PROTEINS = {  # with the status of each
    "with": ("G" * 30 + LOOP + "D" * 30, "found"),
    "without": ("GDEK" * 20, "below_threshold"),
    "short": ("G" * 30 + "AILMFVAI" + "D" * 30, "too_short"),
    "empty": ("", "empty"),
    "tiny": ("G", "below_threshold"),
    "window": ("GDEK" * 256, "below_threshold"),  # as many residues as go through at once
    "long": ("GDEK" * 600 + LOOP + "GDEK" * 100, "found"),
    "small": (("G" * 30 + LOOP + "D" * 30).lower(), "found"),
}
STEM = "some.proteins"


@pytest.fixture
def fasta(tmp_path):
    path = tmp_path / f"{STEM}.fa"
    path.write_text("".join(f">{name} text\n{seq}\n" for name, (seq, _) in PROTEINS.items()))
    return path


@pytest.fixture
def predict(call, tmp_path, fasta):
    """Predict with a network that finds residues in runs of hydrophobic ones."""
    torch.manual_seed(0)
    network = RclCnn(21, CnnSettings(channels=(4,), kernel_sizes=(7,)))
    with torch.no_grad():
        weights = [1.0 if letter in "AILMFVWC" else -0.4 for letter in AMINO_ACIDS] + [0]
        filters = torch.tensor(weights)[None, :, None].expand(4, 21, 7) / 3
        network.conv_layers[0].conv.weight.copy_(filters)
        network.output[0].weight.copy_(torch.tensor([[-2.0] * 4, [2.0] * 4])[..., None])
        network.output[0].bias.copy_(torch.tensor([2.0, -2.0]))
    path = tmp_path / "my_model.safetensors"
    write_rcl_model(path, network.state_dict(), Disk(), encoding="onehot")

    def _predict(*options, source=fasta, out=tmp_path / "out"):
        return call("rcl", "predict", source, "-o", out, "-m", path, *options)

    return _predict


def rows(path):
    lines = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    return {name: cells for name, *cells in lines}


def results(out):
    """The result files but the record, those that are compressed as what is in them."""
    files = {path.name: path for path in out.iterdir() if path.is_file()}
    content = {n: p.read_bytes() for n, p in files.items() if not n.endswith("run.json")}
    return {n: gzip.decompress(c) if n.endswith(".gz") else c for n, c in content.items()}


def test_every_protein_has_a_row(predict, tmp_path):
    out = tmp_path / "out"
    done = predict("-seq_fasta", "-RCL_fasta", "--residues")
    assert done.code == 0, done.err
    assert "found an RCL in 3 of 8 proteins (37.5 %" in done.out
    files = results(out)
    names = ["onehot_RCL_only_thr0p50.fasta", "onehot_RCL_predictions_thr0p50.tsv"]
    names += ["onehot_with_RCL_thr0p50.fasta", "rcl.gff3", "rcl.tsv", "rcl_residues.tsv.gz"]
    assert sorted(files) == [f"{STEM}_{name}" for name in names]
    loops, positions, sequences, gff, _, residues = (
        files[name].decode().splitlines() for name in sorted(files)
    )
    table = rows(out / f"{STEM}_rcl.tsv")
    assert {n: row[5] for n, row in table.items()} == {n: s for n, (_, s) in PROTEINS.items()}
    length, start, end, loop, confidence, _, label = table["with"]
    assert (length, PROTEINS["with"][0][int(start) - 1 : int(end)]) == ("80", loop)
    assert 0.5 < float(confidence) <= 1
    assert table["small"][3] == loop.lower()
    assert int(table["long"][1]) - 2400 == pytest.approx(int(start) - 30, abs=2)
    header = "Accession\tRCL_start_position\tRCL_end_position"
    assert positions[:2] == [header, f"with\t{start}\t{end}"]
    long = PROTEINS["long"][0]
    assert sequences[:4] == [">with", PROTEINS["with"][0], ">long", long[:80]]
    assert loops[:2] == [f">with RCL {start} - {end}", loop]
    assert gff[:2] == ["##gff-version 3", "##sequence-region with 1 80"]
    assert gff[2].split("\t")[:5] == ["with", "virnucpro", "polypeptide_region", start, end]
    assert len(residues) == 1 + sum(len(sequence) for sequence, _ in PROTEINS.values())
    assert residues[2].startswith("with\t2\tG\t")
    record = json.loads((out / f"{STEM}_rcl_run.json").read_text())
    assert record["statuses"]["found"] == 3
    assert record["model"]["name"] == label
    assert record["settings"]["min_consecutive"] == 12
    assert not list((out / ".checkpoints").rglob("*.fa"))


def test_results_do_not_depend_on_groups_and_devices(predict, tmp_path):
    """Two workers on the CPU stand for two GPUs; blocks of the same size give the same bytes."""
    whole, blocks, small, double = (tmp_path / name for name in "abcd")
    for out, *options in (
        (whole, "-d", "cpu"),
        (blocks, "-d", "cpu", "--chunk-size", 2),
        (small, "-d", "cpu", "--batch-size", 3),
        (double, "--cpu-workers", 2, "--chunk-size", 2),
    ):
        assert predict("--residues", "--rcl-fasta", "-t", 2, *options, out=out).code == 0
    assert results(blocks) == results(double)
    for out in (blocks, small):
        assert rows(out / f"{STEM}_rcl.tsv") == rows(whole / f"{STEM}_rcl.tsv")
    record = json.loads((double / f"{STEM}_rcl_run.json").read_text())
    assert record["devices"] == ["CPU", "CPU"]


def test_a_second_start_and_another_threshold(predict, tmp_path):
    out = tmp_path / "out"
    assert predict().code == 0
    assert "nothing to compute" in predict().err
    (run,) = statuses(out)
    assert (run["state"], run["stages"][1]["sequences_done"]) == ("finished", len(PROTEINS))
    assert run["stages"][1]["files"] == 1  # few proteins are one block
    for option, value in (("threshold", 0.501), ("min-consecutive", 9), ("min-rcl-length", 9)):
        assert predict(f"--{option}", value).code == 3  # 0.501 has the same file names as 0.5
    assert predict("--threshold", 0.6, "--force").code == 0
    (predictions,) = out.glob(f"{STEM}_onehot_RCL_predictions_*")
    assert predictions.name.endswith("thr0p60.tsv")
    (out / f"{STEM}_rcl.gff3").unlink()  # is made again
    assert predict("--threshold", 0.6).code == 0
    assert (out / f"{STEM}_rcl.gff3").exists()


def test_standard_input_and_compression(predict, tmp_path, fasta, monkeypatch):
    packed = tmp_path / "packed.faa.gz"
    packed.write_bytes(gzip.compress(fasta.read_bytes()))
    assert predict(source=packed, out=tmp_path / "a").code == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed.read_bytes())))
    assert predict(source="-", out=tmp_path / "b").code == 0
    table = (tmp_path / "a" / "packed_rcl.tsv").read_text()
    assert table == (tmp_path / "b" / "stdin_rcl.tsv").read_text()
    assert not list((tmp_path / "b" / ".checkpoints").rglob("input*"))


@pytest.mark.parametrize(
    ("code", "text", "options"),
    [
        (65, ">a\n" + "ACGT" * 30 + "\n", []),  # nucleotides
        (65, "", []),
        (64, ">a\nMKL\n", ["-m", "no_such_model"]),
        (64, ">a\nMKL\n", ["-m", "esm.safetensors"]),  # its ESM-2 is not here
        (64, ">a\nMKL\n", ["--threshold", "1.5"]),
    ],
)
def test_what_is_refused(predict, tmp_path, monkeypatch, code, text, options):
    monkeypatch.chdir(tmp_path)
    network = RclCnn(320, CnnSettings(channels=(2,), kernel_sizes=(3,)))
    path = tmp_path / "esm.safetensors"
    write_rcl_model(path, network.state_dict(), Disk(), encoding="esm2_8m")
    path = tmp_path / "p.fa"
    path.write_text(text)
    assert predict(*options, source=path).code == code
    assert not list((tmp_path / "out").glob("p*"))
