"""``benchmarks.encoders`` and what it rests on: the check, the turns, the lengths, the clocks."""

from __future__ import annotations

import pytest
import torch

from benchmarks.encoders import compared, measured_precisions
from benchmarks.models import random_encoder, random_frames
from benchmarks.peers import fair_esm, own_embed, transformers_esm
from virnucpro.contracts import Device

PROTEINS = random_frames("500", 8)["protein"]
PEERS = {"fair-esm": fair_esm, "transformers": transformers_esm}


def opened(precision="fp32"):
    return random_encoder("esm2", "2x48x4", "cpu", precision)


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
def test_peers_compute_with_our_weights(peer):
    encoder = opened()
    found = compared(peer(encoder)(PROTEINS), own_embed(encoder)(PROTEINS), "fp32")
    assert found["check"] == "same"
    assert found["largest_difference"] < 1e-5


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
@pytest.mark.parametrize("name", ["embed.weight", "blocks.1.qkv.weight", "blocks.0.fc2.bias"])
def test_the_check_fails_where_weights_differ(peer, name):
    encoder = opened()
    exact, embed = own_embed(encoder)(PROTEINS), peer(encoder)
    weight = encoder.network.get_parameter(name)  # the peer's, too
    weight += 0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    assert compared(embed(PROTEINS), exact, "fp32")["check"] == "differs"


@pytest.mark.parametrize(
    ("capability", "names"),
    [((9, 0), ("fp32", "bf16", "fp16", "fp8")), ((8, 0), ("fp32", "bf16", "fp16")),
     ((7, 0), ("fp32", "fp16"))],
)  # fmt: skip
def test_precisions_that_are_measured_on_a_gpu(capability, names):
    assert measured_precisions(Device("cuda", 0, capability=capability)) == names
