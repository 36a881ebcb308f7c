"""The classifier: both formats, refusals, and scores that do not depend on grouping."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace as changed
from safetensors.torch import save
from torch import nn

from tests.declared import with_changes
from tests.hostile import Evil
from virnucpro.classifier import files
from virnucpro.classifier.files import (
    INNER_BATCH,
    check_fit,
    classifier_to_bytes,
    inspect_classifier,
)
from virnucpro.encoders.family import EncoderSource
from virnucpro.encoders.registry import digest_of
from virnucpro.errors import ModelError
from virnucpro.settings import TOY_CLASSIFIER
from virnucpro.store.hashed import hashed


class MLPClassifier(nn.Module):
    """As the original script has it."""

    def __init__(self, width, hidden, classes=2):
        super().__init__()
        self.hidden_layer = nn.Linear(width, hidden)
        self.dropout = nn.Dropout(0.5)
        self.output_layer = nn.Linear(hidden, classes)
        self.bn1 = nn.BatchNorm1d(hidden)

    def forward(self, x):
        x = self.dropout(torch.relu(self.bn1(self.hidden_layer(x))))
        return self.output_layer(x)


def module(width=12, hidden=5, classes=2):
    torch.manual_seed(1)
    made = MLPClassifier(width, hidden, classes)
    for _ in range(3):  # running statistics that are not the initial ones
        made(torch.randn(64, width) * 3 + 1)
    return made.eval()


@pytest.fixture
def save_module(tmp_path, monkeypatch):
    """Pickle a module as if its class had been defined in a script."""

    def _save(made, name="500_model.pth"):
        monkeypatch.setattr(MLPClassifier, "__module__", "__main__")
        monkeypatch.setattr(sys.modules["__main__"], "MLPClassifier", MLPClassifier, raising=False)
        torch.save(made, tmp_path / name)
        return tmp_path / name

    return _save


def softmax_of(made, x):
    with torch.inference_mode():
        return made(x).softmax(1)


def test_pickled_module(save_module):
    made, x = module(), torch.randn(300, 12)
    info = inspect_classifier(save_module(made))
    assert (info.model.input_width, info.model.hidden) == (12, 5)
    assert (info.labels, info.encoders, info.chunk_lengths) == ((), (), ())
    assert torch.allclose(info.model.scores(x), softmax_of(made, x), atol=1e-6)


def test_own_format(tmp_path):
    made, x, path = module(), torch.randn(10, 12), tmp_path / "mine.safetensors"
    facts = {"encoders": ["dnabert-s", "esm2"], "chunk_lengths": [300, 500]}
    contents = [
        classifier_to_bytes(made.state_dict(), **facts, extra=dict.fromkeys(order, "why"))
        for order in ("ab", "ba")
    ]
    assert contents[0] == contents[1]
    path.write_bytes(contents[0])
    info = inspect_classifier(path)
    assert (info.model.input_width, info.model.hidden) == (12, 5)
    assert (info.labels, info.batch_norm_eps) == (("others", "virus"), made.bn1.eps)
    assert (info.encoders, info.chunk_lengths) == (("dnabert-s", "esm2"), (300, 500))
    assert torch.allclose(info.model.scores(x), softmax_of(made, x), atol=1e-6)


def test_a_newer_schema_and_a_file_that_is_replaced_meanwhile(tmp_path, monkeypatch):
    path = tmp_path / "mine.safetensors"
    path.write_bytes(with_changes(TOY_CLASSIFIER, temperature=1.0))
    found = hashed(path)
    monkeypatch.setattr(files, "hashed", lambda _: found)
    path.write_bytes(with_changes(TOY_CLASSIFIER, temperature=2.0))
    with pytest.raises(ModelError, match="is not the file"):
        inspect_classifier(path)
    monkeypatch.undo()
    stored = path.read_bytes()
    path.write_bytes(stored.replace(rb"\"schema\": 1", rb"\"schema\": 2"))
    assert path.read_bytes() != stored
    with pytest.raises(ModelError, match="schema"):
        inspect_classifier(path)


@pytest.mark.parametrize("kind", ["pth", "safetensors"])
def test_temperature(save_module, tmp_path, kind):
    made, x = module(), torch.randn(300, 12)
    path = save_module(made)
    if kind == "safetensors":
        path = tmp_path / "mine.safetensors"
        facts = {"encoders": ["toy-nucleotide"], "chunk_lengths": [300], "extra": {"seed": "1"}}
        path.write_bytes(classifier_to_bytes(made.state_dict(), **facts))
    old = inspect_classifier(path)
    before, logits = old.model.scores(x), old.model.scores(x, softmax=False)
    assert old.temperature is None
    assert torch.equal(logits.softmax(1), before)

    cool, again = tmp_path / "cool.safetensors", tmp_path / "again.safetensors"
    cool.write_bytes(with_changes(path, temperature=2.0))
    new = inspect_classifier(cool)
    assert (new.temperature, new.labels) == (2.0, ("others", "virus"))
    assert (new.encoders, new.chunk_lengths) == (old.encoders, old.chunk_lengths)
    assert torch.equal(new.model.scores(x, softmax=False), logits)
    assert torch.allclose(new.model.scores(x), (logits / 2).softmax(1), atol=1e-6)
    # In place of the first, not on top of it.
    again.write_bytes(with_changes(cool, temperature=1.0))
    assert torch.equal(inspect_classifier(again).model.scores(x), before)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_is_a_positive_number(value):
    with pytest.raises(ModelError, match="temperature"):
        with_changes(TOY_CLASSIFIER, temperature=value)


@pytest.mark.parametrize(
    "said",
    [
        {"temperature": 1e308},
        {"temperature": 1e-300},
        {"batch_norm_eps": 10**400},
        {"chunk_lengths": [500, 10**400]},
        {"contigs": {"500": [1e308, -1e308, 0.0, 0.0, 0.0]}},
        {"contigs": {"500": [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 10**308]}},
    ],
)
def test_numbers_that_cannot_be_computed_with_are_refused(tmp_path, said):
    path = tmp_path / "mine.safetensors"
    tensors = module().state_dict()
    del tensors["bn1.num_batches_tracked"]
    path.write_bytes(save(tensors, {"virnucpro": json.dumps({"schema": 1, **said})}))
    with pytest.raises(ModelError):
        inspect_classifier(path)


def test_classes_in_another_order_are_refused():
    with pytest.raises(ModelError, match="expected"):
        classifier_to_bytes({}, labels=("virus", "others"))


def test_scores_do_not_depend_on_grouping(save_module):
    classifier = inspect_classifier(save_module(module())).model
    x = torch.randn(5 * INNER_BATCH + 17, 12)
    whole = classifier.scores(x)
    assert whole.dtype == torch.float32
    assert torch.allclose(whole.sum(1), torch.ones(len(x)))
    for slab in (INNER_BATCH, 3 * INNER_BATCH):
        parts = [classifier.scores(x[i : i + slab]) for i in range(0, len(x), slab)]
        assert torch.equal(torch.cat(parts), whole)
    assert classifier.scores(x[:0]).shape == (0, 2)
    with pytest.raises(ValueError, match="expected"):
        classifier.scores(torch.zeros(2, 11))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda made, path: setattr(made, "extra", Evil(path)), r"refused: .*\.system"),
        (lambda made, _: setattr(made, "more", nn.Conv1d(1, 1, 1)), r"refused: .*Conv1d"),
        (lambda made, _: setattr(made, "output_layer", nn.Linear(5, 3)), r"size mismatch"),
        (lambda made, _: delattr(made, "bn1"), r"Missing key.*bn1\.weight"),
        (lambda made, _: made.bn1.running_var[0].fill_(float("nan")), r"in bn1\.running_var"),
        (lambda made, _: made.bn1.running_var[0].fill_(-1.0), r"in bn1\.running_var"),
    ],
)
def test_other_modules_are_refused_and_not_run(save_module, tmp_path, change, said):
    made = module()
    change(made, tmp_path / "was-run")
    with pytest.raises(ModelError, match=said):
        inspect_classifier(save_module(made))
    assert not (tmp_path / "was-run").exists()


DNA = EncoderSource("dnabert-s", "zhihan1996/DNABERT-S", Path("dna"), (), "", 768)
ESM = EncoderSource("esm2", "esm2_t36_3B_UR50D", Path("esm.pt"), (), "", 2560)


@pytest.fixture
def info():
    found = changed(inspect_classifier(TOY_CLASSIFIER), encoders=())
    found.model.input_width = 3328
    return found


def verdict_of(*arguments):
    try:
        return "warns" if check_fit(*arguments) else "fits"
    except ModelError:
        return "error"


@pytest.mark.parametrize(
    ("encoders", "asked", "verdict"),
    [
        ((), "esm2_t36_3B_UR50D", "fits"),
        (("dnabert-s", "esm2"), "esm2_t36_3B_UR50D", "fits"),
        (("DNABERT-S", "esm2_t36_3B_UR50D"), "facebook/esm2_t36_3B_UR50D", "fits"),
        (("dnabert-s", "facebook/esm2_t36_3B_UR50D"), "/models/esm2_t36_3B_UR50D.pt", "fits"),
        (("dnabert-s", "esm2_t36_3B_UR50D"), "/models/mine", "warns"),
        (("dnabert-s", "esm2_t36_3B_UR50D"), "esm2_t33_650M_UR50D", "error"),
        (("dnabert-s", "esm3"), "esm2_t36_3B_UR50D", "error"),
        (("toy-nucleotide", "toy-protein"), "esm2_t36_3B_UR50D", "error"),
    ],
)
def test_encoders_must_fit(info, encoders, asked, verdict):
    esm = replace(ESM, name=asked)
    assert verdict_of(changed(info, encoders=encoders), (DNA, esm), 500) == verdict
    known = changed(info, encoders=encoders, extra={"encoder_sha256": "a b"})  # made with it
    own = [replace(each, sha256=digest_of([file])) for each, file in ((DNA, "a"), (esm, "b"))]
    assert verdict_of(known, own, 500) == verdict
    assert verdict_of(known, (own[0], esm), 500) == ("error" if encoders else verdict)


@pytest.mark.parametrize(
    ("name", "lengths", "chunk_length", "verdict"),
    [
        ("500_model.pth", (), 500, "fits"),
        ("500_model.pth", (), 300, "warns"),
        ("mine.pth", (), 300, "fits"),
        ("mine.safetensors", (300, 500), 300, "fits"),
        ("mine.safetensors", (300, 500), 400, "error"),
    ],
)
def test_widths_and_chunk_lengths_must_fit(info, name, lengths, chunk_length, verdict):
    info = changed(info, file=replace(info.file, path=Path(name)), chunk_lengths=lengths)
    assert verdict_of(info, (DNA, ESM), chunk_length) == verdict
    info.model.input_width = 32
    assert verdict_of(info, (DNA, ESM), chunk_length) == "error"
