import random

import pytest
import torch
from safetensors.torch import save_file

from virnucpro.encoders.lite import PACKAGED
from virnucpro.errors import ModelError
from virnucpro.stages import kinds
from virnucpro.store.hashed import hashed

BASES = "".join(random.Random(3).choices("ACGT", k=20_000))


@pytest.fixture
def head(tmp_path, monkeypatch):
    """A layer that answers with its bias; records with cosines below ``least`` are unfamiliar."""

    def _head(bias, digest=None, least=(-1.0, -1.0)):
        tensors = {
            "weights": torch.zeros(512),
            "bias": torch.tensor(float(bias)),
            "typical": torch.eye(512)[:10].half(),
            "lengths": torch.tensor([150.0, 1000.0]),
            "least": torch.tensor(least),
        }
        save_file(
            tensors,
            tmp_path / "head.safetensors",
            {"encoder_sha256": digest or hashed(PACKAGED).sha256},
        )
        monkeypatch.setattr(kinds, "HEAD", tmp_path / "head.safetensors")

    return _head


@pytest.mark.parametrize(
    ("bias", "sequences", "expected"),
    [
        (2, [BASES[:600].lower()], "phage"),
        (-2, [BASES[:600]], "eukaryotic virus"),
        (1, [BASES[:600]], "unsure"),
        (-2, [BASES[:150], BASES[200:350]], "eukaryotic virus"),
        (2, [BASES[:30]], "phage"),
        (2, [BASES[:29]], "unsure"),  # too short to read
        (2, [BASES[:20] + "N" * 600], "unsure"),
    ],
)
def test_kinds(head, bias, sequences, expected):
    head(bias)
    # Beside other records.
    asked = [[], kinds.windows(sequences), kinds.windows([BASES])]
    answers = kinds.VirusKinds().of(asked)
    assert [answer.virus_kind for answer in answers[:2]] == ["unsure", expected]
    assert answers[0].unfamiliar == "NA"


@pytest.mark.parametrize(
    ("least", "expected"),
    [((-1.0, -1.0), ["no", "no"]), ((1.0, 1.0), ["yes", "yes"]), ((1.0, -3.0), ["yes", "no"])],
)
def test_unfamiliar_records_follow_the_bases_that_were_read(head, least, expected):
    head(0, least=least)
    asked = [kinds.windows([BASES[:length]]) for length in (200, 2000)]
    assert [answer.unfamiliar for answer in kinds.VirusKinds().of(asked)] == expected


def test_likeness_is_the_mean_cosine_to_the_nearest():
    typical = torch.tensor([[1.0, 0.0]] * 4 + [[0.0, 1.0]] + [[-1.0, 0.0]])
    rows = torch.tensor([[9.0, 9.0, 3.0, 0.0], [0.0, 0.0, 0.0, 2.0]])  # by the last numbers
    assert kinds.likeness_to(typical, rows).tolist() == pytest.approx([0.8, 0.2])


def test_another_encoder_is_refused(head):
    head(2, "0" * 64)
    with pytest.raises(ModelError, match="is not of the encoder"):
        kinds.VirusKinds()
