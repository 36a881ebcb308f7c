"""Our ESM-2 against fair-esm's and transformers' own, over every layout of the weights."""

from __future__ import annotations

import argparse
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.unit.encoders.small import (
    ESM_HEADS,
    ESM_LAYERS,
    ESM_WIDTH,
    LETTERS,
    fair_model,
    hub_model,
    open_path,
    quiet,
    save_fair,
    save_hub,
    sequences,
)
from virnucpro.encoders.esm2 import rotary_tables, tokenise
from virnucpro.errors import ModelError

LENGTHS = [1, 2, 3, 5, 17, 64, 99, 100, 100, 100, 128, 166, 166, 300, 1023, 1024, 1025, 1100]
PROTEINS = sequences(LENGTHS, LETTERS + "XBUZO")


def reference(states, proteins):
    """Mean over the residues of the last layer, one protein at a time."""
    rows = []
    with torch.inference_mode():
        for protein in proteins:
            n = min(len(protein), 1024)
            rows.append(states(torch.from_numpy(tokenise([protein[:1024]])))[0, 1 : n + 1].mean(0))
    return torch.stack(rows)


def of_fair(model):
    return lambda tokens: model(tokens, [model.num_layers])["representations"][model.num_layers]


def of_hub(model):
    base = getattr(model, "esm", model)
    return lambda tokens: base(tokens).last_hidden_state


def difference(encoder, expected, proteins=PROTEINS):
    return float((encoder.encode(proteins, quiet) - expected).abs().max())


@pytest.mark.parametrize(("layers", "width", "heads"), [(1, 16, 1), (2, 48, 4)])
def test_equals_fair_esm(tmp_path, layers, width, heads):
    model = fair_model(layers, width, heads)
    encoder = open_path(save_fair(model, tmp_path / "model.pt"))
    assert encoder.dim == width
    expected = reference(of_fair(model), PROTEINS)
    assert difference(encoder, expected) < 1e-5
    encoder.pack()
    assert difference(encoder, expected) < 1e-5


def test_tokens_are_those_of_fair_esm():
    from esm.data import Alphabet

    letters = LETTERS + "XBUZO.-"
    _, _, expected = Alphabet.from_architecture("ESM-1b").get_batch_converter()([("", letters)])
    assert tokenise([letters]).tolist() == expected.tolist()
    assert tokenise(["Aj*é"]).tolist() == [[0, 5, 3, 3, 3, 2]]
    assert tokenise(["AA", "A"]).tolist() == [[0, 5, 5, 2], [0, 5, 2, 1]]


@pytest.mark.parametrize("token_dropout", [True, False])
@pytest.mark.parametrize("prefix", ["encoder.sentence_encoder.", "encoder.", ""])
@pytest.mark.parametrize("cfg", [argparse.Namespace, dict])
def test_variants_of_fair_esm_files(tmp_path, cfg, prefix, token_dropout):
    model = fair_model(token_dropout=token_dropout)
    encoder = open_path(save_fair(model, tmp_path / "model.pt", cfg, prefix))
    some = PROTEINS[:8]
    assert difference(encoder, reference(of_fair(model), some), some) < 1e-5


def test_an_empty_protein_is_refused(tmp_path):
    path = save_fair(fair_model(), tmp_path / "model.pt")
    with pytest.raises(ValueError, match="protein 2 of 2 is empty"):
        open_path(path).encode(["M", ""], quiet)


@pytest.mark.parametrize(
    ("kind", "shards", "options"),
    [
        ("EsmModel", "5GB", {}),
        ("EsmForMaskedLM", "50kB", {}),
        ("EsmModel", "5GB", {"layer_norm_eps": 1e-2, "token_dropout": False}),
    ],
)
def test_equals_transformers(tmp_path, kind, shards, options):
    model = hub_model(kind, **options)
    folder = save_hub(model, tmp_path / "hub", max_shard_size=shards)
    assert (len(list(folder.glob("*.safetensors"))) > 1) == (shards == "50kB")
    assert difference(open_path(folder), reference(of_hub(model), PROTEINS)) < 1e-5


def test_older_names_in_sharded_pickles(tmp_path):
    """As older transformers wrote them: ``weight`` and ``bias`` of norms, frequencies a layer."""
    model = hub_model("EsmForMaskedLM")
    folder = save_hub(model, tmp_path / "hub")
    state = {
        key.replace(".gamma", ".weight").replace(".beta", ".bias"): value
        for key, value in load_file(folder / "model.safetensors").items()
        if "inv_freq" not in key
    }
    head = ESM_WIDTH // ESM_HEADS
    for i in range(ESM_LAYERS):
        name = f"esm.encoder.layer.{i}.attention.self.rotary_embeddings.inv_freq"
        state[name] = 1 / 10000 ** (torch.arange(0, head, 2) / head)
    (folder / "model.safetensors").unlink()
    place = {}
    for number in (1, 2):
        name = f"pytorch_model-0000{number}-of-00002.bin"
        part = dict(list(state.items())[number - 1 :: 2])
        torch.save(part, folder / name)
        place |= dict.fromkeys(part, name)
    index = {"metadata": {}, "weight_map": place}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert difference(open_path(folder), reference(of_hub(model), PROTEINS)) < 1e-5


def test_stored_frequencies_are_used_and_absent_ones_computed(tmp_path):
    model = fair_model()
    stored = save_fair(model, tmp_path / "stored.pt")
    content = torch_load(stored)
    for key in [key for key in content["model"] if "inv_freq" in key]:
        del content["model"][key]
    torch.save(content, tmp_path / "absent.pt")
    for layer in model.layers:
        width = ESM_WIDTH // ESM_HEADS
        layer.self_attn.rot_emb.inv_freq = 1 / 10000 ** (torch.arange(0, width, 2) / width)
        layer.self_attn.rot_emb._seq_len_cached = None
    exact = reference(of_fair(model), PROTEINS)
    assert difference(open_path(tmp_path / "absent.pt"), exact) < 1e-5
    assert difference(open_path(stored), exact) > 1e-5


def torch_load(path):
    with torch.serialization.safe_globals([argparse.Namespace]):
        return torch.load(path, weights_only=True)


P = "encoder.sentence_encoder."


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["model"].pop(P + "layers.1.fc2.bias"),
        lambda c: c["model"].update({P + "layers.0.fc2.bias": torch.zeros(3)}),
        lambda c: c["model"][P + "layers.1.self_attn.k_proj.weight"].fill_(float("nan")),
        lambda c: setattr(c["cfg"]["model"], "encoder_layers", 1),
        lambda c: delattr(c["cfg"]["model"], "encoder_embed_dim"),
        lambda c: setattr(c["cfg"]["model"], "encoder_attention_heads", 7),
        lambda c: c.pop("cfg"),
    ],
)
def test_damaged_checkpoints(tmp_path, change):
    path = save_fair(fair_model(), tmp_path / "model.pt")
    content = torch_load(path)
    change(content)
    torch.save(content, path)
    with pytest.raises(ModelError, match=r"model\.pt"):
        open_path(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hidden_size", None, "hidden_size"),
        ("num_hidden_layers", 1, "Unexpected key.*blocks.1"),
        ("num_hidden_layers", 3, "Missing key.*blocks.2"),
        ("layer_norm_eps", "x", "layer_norm_eps"),
        ("position_embedding_type", "absolute", "is not an encoder of a known kind"),
        ("intermediate_size", 101, "size mismatch"),
        ("model_type", "llama", "is not an encoder of a known kind"),
    ],
)
def test_configuration_that_does_not_fit(tmp_path, key, value, message):
    folder = save_hub(hub_model("EsmModel"), tmp_path / "hub")
    config = json.loads((folder / "config.json").read_text()) | {key: value}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=message):
        open_path(folder)


def test_rotary_tables_are_exact_to_the_last_bit():
    """torch's own cosine is not: see ``rotary_tables``."""
    frequencies = 1 / 10000 ** (torch.arange(0, 64, 2) / 64)
    cos, sin = rotary_tables(frequencies.float(), 1026, torch.device("cpu"))
    angles = torch.outer(torch.arange(1026.0), frequencies.float()).double().numpy()
    assert np.array_equal(cos.numpy(), np.cos(angles).astype(np.float32))
    assert np.array_equal(sin.numpy(), np.sin(angles).astype(np.float32))
