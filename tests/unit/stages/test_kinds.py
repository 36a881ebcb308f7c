import random

import pytest
import torch
from safetensors.torch import save_file

from virnucpro.encoders.lite import LITE
from virnucpro.errors import ModelError
from virnucpro.stages import kinds
from virnucpro.store.disk import sha256_of

BASES = "".join(random.Random(3).choices("ACGT", k=20_000))


@pytest.fixture
def head(tmp_path, monkeypatch):
    """A layer that answers with its bias."""

    def _head(bias, digest=None):
        tensors = {"weights": torch.zeros(256), "bias": torch.tensor(float(bias))}
        save_file(
            tensors,
            tmp_path / "head.safetensors",
            {"encoder_sha256": digest or sha256_of(LITE.packaged())},
        )
        monkeypatch.setattr(kinds, "HEAD", tmp_path / "head.safetensors")

    return _head


@pytest.mark.parametrize(
    ("bias", "sequences", "expected"),
    [
        (2, [BASES[:600]], "phage"),
        (-2, [BASES[:600]], "eukaryotic virus"),
        (1, [BASES[:600]], "unsure"),
        (-2, [BASES[:150], BASES[200:350]], "eukaryotic virus"),
        (2, [BASES[:20]], "unsure"),  # too short to read
    ],
)
def test_kinds(head, bias, sequences, expected):
    head(bias)
    # Beside other records.
    asked = [[], kinds.windows(sequences), kinds.windows([BASES])]
    assert kinds.VirusKinds().of(asked)[:2] == ["unsure", expected]


def test_few_windows_of_a_long_record_are_read():
    assert [BASES.find(text) for text in kinds.windows([BASES])] == [n * 5 * 500 for n in range(8)]


def test_another_encoder_is_refused(head):
    head(2, "0" * 64)
    with pytest.raises(ModelError, match="is not of the encoder"):
        kinds.VirusKinds()


def test_the_packaged_layer_belongs_to_the_packaged_encoder():
    assert len(kinds.VirusKinds().of([[BASES[:500]]])) == 1
