"""Small networks with random weights, and the reference of the original program."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from virnucpro.rcl.features import RESIDUE_ENCODINGS
from virnucpro.rcl.models import NETWORKS, RclModel
from virnucpro.rcl.settings import CnnSettings, LstmSettings, UnetSettings

SMALL = {
    "cnn": CnnSettings(channels=(8, 6), kernel_sizes=(7, 3)),
    "unet": UnetSettings(base_filters=4, depth=4),
    "lstm": LstmSettings(hidden_dim=6, num_layers=2),
}


@pytest.fixture(scope="session")
def rcl_reference(reference: Path) -> Path:
    folder = reference.parent / "rcl" / "reference"
    if not folder.is_dir():
        pytest.skip("the reference outputs of the RCL predictor are not here")
    return folder


@pytest.fixture
def small_model() -> Callable[..., RclModel]:
    def make(kind: str = "unet", encoding: str = "onehot", padded: bool = False) -> RclModel:
        torch.manual_seed(7)
        network = NETWORKS[kind](RESIDUE_ENCODINGS[encoding].width, SMALL[kind])
        for name, buffer in network.named_buffers():  # as after a training
            if name.endswith("running_mean"):  # a high one would leave only zeros
                buffer.uniform_(-0.1, 0.1)
            elif name.endswith("running_var"):
                buffer.uniform_(0.1, 0.3)
        network.requires_grad_(False)
        return RclModel(network.eval(), encoding, padded=padded)

    return make
