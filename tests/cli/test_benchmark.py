"""``virnucpro benchmark`` on the CPU, with tiny models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.unit.encoders.small import fair_model, make_dnabert, save_fair
from virnucpro.classifier.files import classifier_to_bytes
from virnucpro.contracts import Device
from virnucpro.precision import measured_precisions

TINY = ("-d", "cpu", "-t", 1, "--seconds", 0, "--sequences", 6)
MODELS = ("esm2:2x48x4", "dnabert-s:2x48x6")


@pytest.fixture(autouse=True)
def _threads(monkeypatch):
    """``--threads`` is for a process: give the others of this one theirs back."""
    monkeypatch.setenv("RAYON_NUM_THREADS", "2")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def fasta(tmp_path_factory) -> Path:
    """Three records, of which every chunk has open frames."""
    path = tmp_path_factory.mktemp("input") / "some.fa"
    path.write_text("".join(f">r{i}\n{'GCAGGC' * (60 + 20 * i)}\n" for i in range(3)))
    return path


def test_the_document(call, tmp_path):
    saved = tmp_path / "new" / "figures.json"
    done = call("benchmark", *MODELS, *TINY, "--json", saved)
    assert done.code == 0, done.err
    document = json.loads(saved.read_bytes())
    assert document["schema"] == 1
    # In this process the arguments are those of pytest, where it was given any.
    assert document["command"].startswith("virnucpro")
    assert document["machine"]["threads"] == 1
    assert document["machine"]["torch"] == torch.__version__
    assert (document["workload"]["name"], document["workload"]["sequences"]) == ("500", 6)
    esm, dnabert = document["models"]
    names = [(r["implementation"], r["precision"]) for r in esm["results"]]
    fast = measured_precisions(Device("cpu"))  # bf16 only where the processor has it
    ours = [("virnucpro", precision) for precision in fast[1:]]
    peers = [("transformers", precision) for precision in fast[1:]]
    assert names[:3] == [("virnucpro", "fp32"), ("fair-esm", "fp32"), ("transformers", "fp32")]
    assert names[3:] == [each for pair in zip(ours, peers, strict=True) for each in pair]
    names = [(r["implementation"], r["precision"]) for r in dnabert["results"]]
    assert names == [("virnucpro", "fp32"), ("one by one", "fp32"), *ours]
    for model in document["models"]:
        assert model["matmul_clocks"]["fp32"]["power_watts"] is None  # only a GPU tells it
        assert set(model["matmul_flops_per_second"]) == set(fast)
        for row in model["results"]:
            assert len(row["seconds"]) == 3
            typical = sorted(row["seconds"])[1]
            assert row["sequences_per_second"] == pytest.approx(6 / typical)
            assert row["tokens_per_second"] == pytest.approx(model["tokens"] / typical)
            assert row["share_of_matmul"] > 0
            assert row["check"] in ("reference", "same")
            assert (row["compile_seconds"], row["peak_memory"]) == (0, None)
    ours, fair, hub = esm["results"][:3]
    for other, name in ((fair, "original"), (hub, "transformers")):
        rounds = [b / a for a, b in zip(ours["seconds"], other["seconds"], strict=True)]
        assert ours[f"ratio_to_{name}"] == sorted(rounds)[1]
        assert other[f"ratio_to_{name}"] == 1
    assert (ours["least_cosine"], fair["check"]) == (None, "same")
    assert fair["largest_difference"] < 1e-5
    assert dnabert["results"][0]["ratio_to_transformers"] is None


def test_the_table(call):
    done = call("benchmark", "esm2:2x48x4", *TINY, "--precision", "bf16", "--mix", "reads")
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert "reads: 6 frames of chunks of 150 bases" in done.out
    # Ours in fp32 is what the others are compared with; it was not asked for, and is not timed.
    (reference,) = [line for line in lines if line[1:3] == ["virnucpro", "fp32"]]
    assert reference[3:5] == ["-", "-"]
    (ours,) = [line for line in lines if line[1:3] == ["virnucpro", "bf16"]]
    assert ours[0] == "esm2:2x48x4"
    assert float(ours[3].replace(",", "")) > 0
    assert ours[-1] == "same"
    assert "checking transformers bf16" in done.err


def test_quiet_and_without_peers(call):
    done = call(
        "benchmark", "dnabert-s:1x24x2", *TINY, "--no-peers", "--precision", "bf16", "--budget", 4,
        "-q",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    assert "one by one" not in done.out
    assert "fp32" not in done.out


def test_frames_of_a_file(call, fasta, tmp_path):
    saved = tmp_path / "figures.json"
    arguments = ("--no-peers", "--input", fasta, "--mix", "300", "--json", saved)
    assert call("benchmark", "esm2:1x24x2", *TINY, *arguments).code == 0
    work = json.loads(saved.read_bytes())["workload"]
    assert work == {
        "name": "some.fa",
        "chunk_length": 300,
        "sequences": 6,
        "residues": work["residues"],
        "bases": work["bases"],
    }


STAGES = {  # and whether devices wait for it
    "chunking": True,
    "translation": True,
    "splitting": True,
    "tokens of dnabert-s": False,
    "tokens of esm2": False,
    "nucleotide_embeddings: between spans": True,
    "nucleotide_embeddings: joining a file": False,
    "protein_embeddings: between spans": True,
    "protein_embeddings: joining a file": False,
    "merging": True,
    "prediction": True,
    "consensus": True,
    "output": True,
}


def test_stages_alone(call, tmp_path):
    saved = tmp_path / "figures.json"
    done = call("benchmark", "--stages", *TINY, "--json", saved)
    assert done.code == 0, done.err
    document = json.loads(saved.read_bytes())
    assert document["models"] == []
    rows = document["stages"]
    assert {row["stage"]: not row["beside_the_device"] for row in rows} == STAGES
    for row in rows:
        assert row["frames_per_second"] > 0
        assert row["seconds_per_million"] == pytest.approx(1e6 / row["frames_per_second"])
        assert row["stage"] in done.out
    total = sum(row["seconds_per_million"] for row in rows if STAGES[row["stage"]])
    assert document["host_seconds_per_million"] == pytest.approx(total)
    assert f"all that devices wait for {total:,.2f} s" in " ".join(done.out.split())


def test_stages_of_a_file(call, fasta, tmp_path):
    saved = tmp_path / "figures.json"
    arguments = ("--stages", "--input", fasta, "--mix", "300", "--json", saved)
    assert call("benchmark", *TINY, *arguments).code == 0
    rows = json.loads(saved.read_bytes())["stages"]
    measured = {row["stage"]: row["measured"] for row in rows}
    # Its records have a few frames; features, of which that would show nothing, are made up.
    assert measured["chunking"] == measured["splitting"] < 100
    assert measured["merging"] == measured["output"] > 1000


def test_accuracy_of_random_weights_claims_nothing(call, fasta, tmp_path):
    saved = tmp_path / "figures.json"
    done = call("benchmark", *MODELS, *TINY, "--no-peers", "--precision", "bf16", "--accuracy", fasta,
                "--json", saved)  # fmt: skip
    assert done.code == 0, done.err
    assert "No precision is recommended" in done.out
    accuracy = json.loads(saved.read_bytes())["accuracy"]
    (bf16,) = accuracy["precisions"]
    assert (bf16["labels"], bf16["recommended"]) == (None, None)
    for distance in bf16["embeddings"].values():
        assert 0.99 < distance["least_cosine"] <= distance["mean_cosine"] < 1
        assert distance["largest_difference"] > 0


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> tuple[str, str, Path]:
    """Models on disk, and a classifier that belongs to them."""
    folder = tmp_path_factory.mktemp("models")
    esm = save_fair(fair_model(), folder / "esm2_t2_test.pt")
    dnabert = make_dnabert(folder / "dnabert")
    classifier = folder / "classifier.safetensors"
    random = torch.Generator().manual_seed(4)
    shapes = {
        "hidden_layer.weight": (16, 96), "hidden_layer.bias": (16,), "bn1.weight": (16,),
        "bn1.bias": (16,), "bn1.running_mean": (16,), "bn1.running_var": (16,),
        "output_layer.weight": (2, 16), "output_layer.bias": (2,),
    }  # fmt: skip
    state = {name: torch.rand(shape, generator=random) for name, shape in shapes.items()}
    classifier.write_bytes(classifier_to_bytes(state, encoders=(), chunk_lengths=(300,), extra={}))
    return f"esm2:{esm}", f"dnabert-s:{dnabert}", classifier


def test_accuracy_of_real_weights(call, real, fasta, tmp_path):
    esm, dnabert, classifier = real
    saved = tmp_path / "figures.json"
    done = call(
        "benchmark", esm, dnabert, *TINY, "--weights", "real", "--mix", "300", "--accuracy", fasta,
        "--classifier", classifier, "--precision", "fp32,bf16", "--json", saved,
    )  # fmt: skip
    assert done.code == 0, done.err
    document = json.loads(saved.read_bytes())
    assert all(row["check"] != "differs" for m in document["models"] for row in m["results"])
    labels = document["accuracy"]["precisions"][0]["labels"]
    assert labels["frames_compared"] == document["accuracy"]["frames"]
    assert 0 <= labels["frames"] <= 1
    # A handful of chunks shows nothing about one label in a thousand.
    assert document["accuracy"]["precisions"][0]["recommended"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("esm1",), "not a model that can be measured"),
        (("esm2:huge",), "expected LAYERSxWIDTHxHEADS, or one of esm2_t6"),
        (("esm2:2x50x4",), "divide by twice the heads"),
        ((*MODELS, "--budget", 5), "name models of one kind"),
        (("--precision", "int8"), "expected fp32, bf16, fp16 or fp8"),
        (("--precision", "fp8"), "a CPU has no fast fp8"),
        (("--classifier", "x"), "add --accuracy"),
        (("--weights", "real", "esm2_t6_9M_UR50D"), "esm2_t6_8M_UR50D"),
        (("--weights", "real", "esm2:toy"), "is of family toy-protein"),
    ],
)
def test_what_cannot_be_measured_is_said(call, arguments, message):
    done = call("benchmark", *arguments, "-d", "cpu")
    assert done.code == 64
    assert message in done.err


def test_a_classifier_needs_both_real_models(call, real, fasta):
    done = call(
        "benchmark", *MODELS, *TINY, "--accuracy", fasta, "--classifier", real[2], "--no-peers"
    )
    assert done.code == 64
    assert "with --weights real" in done.err


def test_a_file_without_open_frames_is_said(call, tmp_path):
    path = tmp_path / "stops.fa"
    path.write_text(">a\nNNNNNNNNNNNN\n")
    done = call("benchmark", "esm2:1x24x2", *TINY, "--input", path)
    assert done.code == 65
    assert "open reading frame" in done.err
