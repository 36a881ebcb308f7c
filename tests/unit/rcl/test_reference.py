"""Networks and the rule give what the original program gave (``rcl/reference``)."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from virnucpro.rcl.encodings import RESIDUE_ENCODINGS
from virnucpro.rcl.networks import NETWORKS, RCL
from virnucpro.rcl.rule import RegionRule, find_region

MODELS = ("blosum_cnn", "blosum_unet", "onehot_cnn", "onehot_lstm", "onehot_unet")
PADDED = 1024  # the length that the original pads every protein to


def proteins(fasta: Path) -> dict[str, str]:
    records: dict[str, str] = {}
    for line in fasta.read_text().splitlines():
        if line.startswith(">"):
            name = line[1:].split()[0]
            records[name] = ""
        else:
            records[name] += line.strip()
    return records


@pytest.mark.parametrize("model", MODELS)
def test_probabilities_are_those_of_the_original(rcl_reference: Path, model: str) -> None:
    encoding_name, kind = model.split("_")
    encoding = RESIDUE_ENCODINGS[encoding_name]
    settings = json.loads((rcl_reference / f"{model}.config.json").read_text())
    options = settings.get("models", {}).get(kind, {})
    network_kind = NETWORKS[kind]
    network = network_kind.module(
        encoding.width, **{k: v for k, v in options.items() if k in network_kind.settings}
    )
    weights = torch.load(rcl_reference / f"{model}.pt", weights_only=True)["model_state_dict"]
    network.load_state_dict({k.removeprefix("module."): v for k, v in weights.items()})
    sequences = list(proteins(rcl_reference / "probes.fa").values())
    x = np.zeros((len(sequences), PADDED, encoding.width), np.float32)
    for row, sequence in zip(x, sequences, strict=True):
        row[: len(sequence)] = encoding.encode(sequence[:PADDED])
    with torch.inference_mode():
        probabilities = network.eval()(torch.from_numpy(x)).softmax(dim=2)[:, :, RCL].numpy()
    expected = np.load(rcl_reference / f"{model}.npz")["probabilities"][:, :, RCL]
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_the_rule_gives_the_tables_of_the_original(rcl_reference: Path, model: str) -> None:
    records = proteins(rcl_reference / "probes.fa")
    probabilities = np.load(rcl_reference / f"{model}.npz")["probabilities"][:, :, RCL]
    tables = sorted(rcl_reference.glob(f"{model}.thr*.min*.tsv"))
    assert tables
    for table in tables:
        _, threshold, minimum, _ = (
            table.name.removeprefix(model).replace("thr0.", "thr0_").split(".")
        )
        rule = RegionRule(
            float(threshold.removeprefix("thr").replace("_", ".")), int(minimum[3:]), 7
        )
        rows = []
        for (name, sequence), row in zip(records.items(), probabilities, strict=True):
            region = find_region(row[: len(sequence)], rule)
            if region is not None:
                rows.append([name, str(region.start), str(region.end)])
        expected = [line.split("\t")[:3] for line in table.read_text().splitlines()[1:]]
        assert rows == expected, table.name
