"""Our DNABERT-S against a plain restatement of the published forward pass, one sequence a time."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F

from tests.unit.encoders.small import make_dnabert, open_path, quiet, sequences
from virnucpro.encoders.dnabert_s import read_tokenizer
from virnucpro.errors import ModelError

LENGTHS = [1, 2, 5, 40, 41, 60, 150, 150, 151, 298, 300, 499, 499, 700]
DNA = [*sequences(LENGTHS, "ACGT"), "NNNNN", "ACGTRYKACGNNACGT", "AACGAACGTATG" * 8]


@pytest.fixture
def folder(tmp_path):
    return make_dnabert(tmp_path / "dnabert")


def plainly(state, ids, slopes):
    """The forward pass in words of ``models.md``: no batch, no mask, no fused anything."""
    heads, t = len(slopes), len(ids)

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], 1e-12)

    embeddings = "embeddings.{}_embeddings.weight"
    x = state[embeddings.format("word")][ids] + state[embeddings.format("token_type")][0]
    x = norm(x, "embeddings.LayerNorm")
    distance = (torch.arange(t)[:, None] - torch.arange(t)[None]).abs()
    for i in range(2):
        p = f"encoder.layer.{i}."
        w = lambda name, p=p: state[p + name]  # noqa: E731
        qkv = x @ w("attention.self.Wqkv.weight").T + w("attention.self.Wqkv.bias")
        q, k, v = (part.view(t, heads, -1).transpose(0, 1) for part in qkv.chunk(3, dim=1))
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        scores = scores - torch.tensor(slopes)[:, None, None] * distance
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(t, -1)
        dense = mixed @ w("attention.output.dense.weight").T + w("attention.output.dense.bias")
        x = norm(x + dense, p + "attention.output.LayerNorm")
        first, second = (x @ w("mlp.gated_layers.weight").T).chunk(2, dim=1)
        inner = (F.gelu(first) * second) @ w("mlp.wo.weight").T + w("mlp.wo.bias")
        x = norm(x + inner, p + "mlp.layernorm")
    return x.mean(0)


def expected(folder):
    stored = torch.load(folder / "pytorch_model.bin", weights_only=True)
    state = {name: value.float() for name, value in stored.items()}
    tokenizer = read_tokenizer(
        folder / "tokenizer.json", len(state["embeddings.word_embeddings.weight"])
    )
    slopes = [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]  # for 6 heads, from the ALiBi paper
    return torch.stack([plainly(state, tokenizer.encode(text).ids, slopes) for text in DNA])


@pytest.mark.parametrize(
    ("prefix", "more"), [("", {}), ("bert.", {"cls.predictions.bias": torch.zeros(3)})]
)
def test_equals_the_plain_forward_pass(folder, prefix, more):
    wanted, path = expected(folder), folder / "pytorch_model.bin"
    state = torch.load(path, weights_only=True)
    torch.save({prefix + key: value for key, value in state.items()} | more, path)
    encoder = open_path(folder, "nucleotide")
    assert float((encoder.encode(DNA, quiet) - wanted).abs().max()) < 1e-5
    encoder.pack()
    assert float((encoder.encode(DNA, quiet) - wanted).abs().max()) < 1e-5


def _model(content, **changes):
    return content | {"model": content["model"] | changes}


def _first_word(content, number):
    words = content["model"]["vocab"]
    return _model(content, vocab=words | {next(iter(words)): number})


def _without_special_tokens(content):
    return content | {"post_processor": content["post_processor"] | {"special_tokens": {}}}


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("config.json", lambda c: c | {"vocab_size": 9}, "shape"),
        ("config.json", lambda c: c | {"hidden_size": "48"}, "hidden_size"),
        ("config.json", lambda c: c | {"num_hidden_layers": 1}, "Unexpected key"),
        ("config.json", lambda c: c | {"num_hidden_layers": 10_000_000}, "num_hidden_layers"),
        ("tokenizer.json", lambda c: {"version": "1.0"}, "is no tokenizer"),
        ("tokenizer.json", lambda c: c | {"pre_tokenizer": {"type": "Nope"}}, "is no tokenizer"),
        ("tokenizer.json", lambda c: c | {"added_tokens": 5}, "is no tokenizer"),
        ("tokenizer.json", lambda c: _model(c, merges=[["QQ", "ZZ"]]), "is no tokenizer"),
        ("tokenizer.json", lambda c: _model(c, unk_token="[QQ]"), "other tokens"),
        ("tokenizer.json", lambda c: _first_word(c, 10**6), "other tokens"),
        ("tokenizer.json", lambda c: _first_word(c, -1), "is no tokenizer"),
        ("tokenizer.json", lambda c: _first_word(c, "7"), "is no tokenizer"),
        ("tokenizer.json", lambda c: _first_word(c, 2**70), "is no tokenizer"),
        ("tokenizer.json", _without_special_tokens, r"put \[CLS\] and \[SEP\]"),
        ("tokenizer.json", lambda c: c | {"post_processor": None}, r"put \[CLS\] and \[SEP\]"),
        ("tokenizer.json", lambda c: [], "Expected `object`"),
    ],
)
def test_files_that_do_not_fit(folder, name, change, message):
    path = folder / name
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(ModelError, match=message):
        open_path(folder, "nucleotide")
