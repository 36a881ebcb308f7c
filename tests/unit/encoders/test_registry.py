"""From what the user names to a description of an encoder."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace

import pytest
import torch

from tests.unit.encoders.small import fair_model, hub_model, make_dnabert, save_fair, save_hub
from virnucpro.contracts import Device
from virnucpro.encoders.family import refuse_changed_models
from virnucpro.encoders.registry import locate, open_encoder
from virnucpro.errors import ModelError, UsageError
from virnucpro.run.prepare import find_encoders
from virnucpro.settings import AnalysisSettings


def test_a_file_that_was_replaced_is_not_opened():
    source = locate("lite", "nucleotide")
    other = replace(source.files[0], sha256="0" * 64, stamp=(0, 0, 0, 0))
    with pytest.raises(ModelError, match="is not the file that the run began with"):
        open_encoder(replace(source, files=(other,)), "cpu", "fp32", budget=None, truncation=1)


def test_a_file_a_folder_and_a_toy(tmp_path):
    file = locate(str(save_fair(fair_model(), tmp_path / "model.pt")), "protein")
    assert (file.family, file.dim, file.files[0].path) == ("esm2", 48, tmp_path / "model.pt")
    folder = locate(str(save_hub(hub_model("EsmModel"), tmp_path / "hub")), "protein")
    assert (folder.family, folder.dim) == ("esm2", 48)
    assert [file.path.name for file in folder.files] == ["config.json", "model.safetensors"]
    dna = locate(str(make_dnabert(tmp_path / "dna")), "nucleotide")
    assert (dna.family, dna.dim, len(dna.files)) == ("dnabert-s", 48, 3)
    toy = locate("toy", "protein")
    assert (toy.family, toy.dim, toy.path, toy.files) == ("toy-protein", 16, None, ())
    assert pickle.loads(pickle.dumps(folder)) == folder  # noqa: S301


def test_the_digest_is_of_contents_not_of_names(tmp_path):
    first = make_dnabert(tmp_path / "first")
    second = shutil.copytree(first, tmp_path / "second")
    of = lambda folder: locate(str(folder), "nucleotide").sha256  # noqa: E731
    assert of(first) == of(second)
    (second / "README.md").write_text("decides nothing")
    assert of(first) == of(second)
    config = second / "config.json"
    config.write_text(config.read_text() + "\n")
    assert of(first) != of(second)


def test_a_path_beats_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_fair(fair_model(), tmp_path / "esm2_t36_3B_UR50D")
    assert locate("esm2_t36_3B_UR50D", "protein").path == tmp_path / "esm2_t36_3B_UR50D"


def test_lite_has_no_fp8():
    gpu = Device("cuda", capability=(9, 0))
    choices = [AnalysisSettings("lite", precision=name).resolved() for name in ("bf16", "fp8")]
    found = find_encoders(choices[0], [], [gpu], print)
    assert (list(found.sources), found.precision) == (["nucleotide"], "bf16")
    with pytest.raises(
        UsageError, match="lite cannot be computed in fp8: use --precision fp32 or bf16"
    ):
        find_encoders(choices[1], [], [gpu], print)
    with pytest.raises(ModelError, match=r"is a nucleotide model, not a protein model"):
        locate("lite", "protein")


@pytest.mark.parametrize("name", ["notes.txt", "frames.fa", "weights.pt", "sequence.pth"])
def test_any_other_file_is_not_taken_for_a_protein_model(tmp_path, name):
    path = tmp_path / name
    if path.suffix == ".pt":  # weights, but of another network
        torch.save({"embeddings.word_embeddings.weight": torch.zeros(2, 2)}, path)
    else:
        path.write_text(">record\nACGT\n")
    for molecule in ("nucleotide", "protein"):
        with pytest.raises(ModelError, match="is not an encoder of a known kind"):
            locate(str(path), molecule)


def test_a_model_of_another_host_is_known_by_its_content(tmp_path):
    """A source as another node sends it: its stamps mean nothing here."""
    path = save_fair(fair_model(), tmp_path / "esm.pt")
    here = locate(str(path), "protein")
    (file,) = here.files
    sent = replace(here, files=(replace(file, stamp=(-1, *file.stamp[1:])),))
    refuse_changed_models(*sent.files)
    assert sent.files[0].stamp == file.stamp  # it was read once
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ModelError, match="not the file that the run began with"):
        refuse_changed_models(*sent.files)
    path.unlink()
    with pytest.raises(ModelError, match="not the file that the run began with"):
        refuse_changed_models(*sent.files)
