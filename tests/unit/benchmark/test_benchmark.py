"""What a benchmark rests on: the check, the turns, the lengths, the calls."""

from __future__ import annotations

import time

import pytest
import torch

from virnucpro.benchmark.accuracy import agrees_with_fp32, labels_agree
from virnucpro.benchmark.encoders import Measurement, TimedProduct, _rates, ratio
from virnucpro.benchmark.implementations import fair_esm, own_implementation, transformers_esm
from virnucpro.benchmark.machine import MatrixProduct
from virnucpro.benchmark.measuring import compare_rows, time_in_turns
from virnucpro.benchmark.models import (
    count_work,
    linear_flops,
    open_model,
    parse_model,
    rotary_frequencies_of,
)
from virnucpro.benchmark.run import disagreeing
from virnucpro.benchmark.workload import frames_of_file, random_frames
from virnucpro.errors import UsageError
from virnucpro.io.fasta import fasta_bytes

ESM = parse_model("esm2:2x48x4", "random")
PROTEINS = random_frames("500", 8).proteins


def _peer(kind, encoder):
    lent = rotary_frequencies_of(ESM, encoder)
    return (
        fair_esm(encoder, lent) if kind == "fair-esm" else transformers_esm(encoder, lent, "fp32")
    )


@pytest.mark.parametrize("kind", ["fair-esm", "transformers"])
def test_peers_compute_with_our_weights(kind):
    encoder = open_model(ESM, "cpu", "fp32", None)
    rows = _peer(kind, encoder).embed(PROTEINS)
    found = compare_rows(rows, encoder.encode(PROTEINS, lambda n, t: None))
    assert found.verdict("fp32") == "same"
    assert found.difference < 1e-5


@pytest.mark.parametrize("kind", ["fair-esm", "transformers"])
@pytest.mark.parametrize("name", ["embed.weight", "blocks.1.qkv.weight", "blocks.0.fc2.bias"])
def test_the_check_fails_where_weights_differ(kind, name):
    encoder = open_model(ESM, "cpu", "fp32", None)
    exact = encoder.encode(PROTEINS, lambda n, t: None)
    peer = _peer(kind, encoder)
    random = torch.Generator().manual_seed(1)
    weight = encoder.network.get_parameter(name)  # the peer's, too
    weight += 0.02 * torch.randn(weight.shape, generator=random)
    assert compare_rows(peer.embed(PROTEINS), exact).verdict("fp32") == "differs"


def test_nothing_finite_is_not_the_same():
    rows = torch.ones(2, 3)
    assert compare_rows(rows * float("nan"), rows).verdict("bf16") == "differs"
    row = {"implementation": "x", "precision": "fp32", "check": "differs", "least_cosine": 0.5}
    document = {"models": [{"model": "m", "results": [row, row | {"check": "same"}]}]}
    assert disagreeing(document) == ["m: x fp32 (least cosine 0.500000)"]


def test_random_weights_are_the_same_in_every_precision():
    exact = open_model(ESM, "cpu", "fp32", None).network.state_dict()
    for precision in ("bf16", "fp16"):
        other = open_model(ESM, "cpu", precision, None).network.state_dict()
        for name, value in exact.items():
            assert torch.equal(other[name], value.to(other[name].dtype)), name


def test_work_takes_turns():
    order: list[str] = []

    def slow() -> None:
        order.append("slow")
        time.sleep(0.02)

    rounds = [
        [len(calls) for calls in both]
        for both in time_in_turns([slow, lambda: order.append("fast")], 0.0)
    ]
    assert order == ["slow", "fast"] * 3
    assert rounds == [[1, 1], [2, 2], [3, 3]]
    *_, both = time_in_turns([slow, lambda: None], 0.05)  # 0.1 s in all
    assert len(both[0]) == len(both[1]) > 3
    assert sum(call.seconds for call in both[0]) > 0.08


def test_ratios_are_of_rounds():
    assert ratio([2.0, 40.0, 4.0], [1.0, 10.0, 2.0]) == 2
    assert ratio([], [1.0]) is None


def test_the_share_is_that_of_the_product():
    encoder = open_model(ESM, "cpu", "fp32", None)
    entry = Measurement(
        own_implementation(encoder, "fp32", 0.0), "same", None, 0.0, None, [2.0, 4.0, 4.0]
    )
    about = {"sequences": 10, "tokens": 1000, "flops": 300}
    found = _rates(entry, about, {"fp32": TimedProduct(50, [1.0, 1.0, 1.0], {})})
    assert found["sequences_per_second"] == 2.5
    assert found["tokens_per_second"] == 250
    assert found["share_of_matmul"] == 1.5  # 300 in 4 s, beside 50 in 1 s


def test_a_slow_product_is_a_small_one(monkeypatch):
    """bf16 on a processor that emulates it: 13 seconds for matrices of 1,024."""
    seconds = {128: 0.001, 256: 0.14, 512: 1.9, 1024: 13.3}
    monkeypatch.setattr(MatrixProduct, "_seconds", lambda self, _: seconds[len(self._a)])
    assert MatrixProduct(torch.device("cpu"), "bf16").flops == 2 * 256**3


def test_operations_are_counted():
    encoder = open_model(ESM, "cpu", "fp32", None)
    assert linear_flops(encoder.network) == 2 * 2 * 12 * 48**2
    tokens, flops = count_work(encoder, ["A" * 10, "A" * 10])
    assert tokens == 24
    assert flops == 24 * 2 * 2 * 12 * 48**2 + 2 * 4 * 48 * 2 * 12**2


@pytest.mark.parametrize(
    ("mix", "longest"), [("500", (166, 499)), ("300", (100, 300)), ("reads", (50, 150))]
)
def test_lengths_are_those_of_full_chunks(mix, longest):
    work = random_frames(mix, 300)
    proteins, nucleotides = sorted(map(len, work.proteins)), sorted(map(len, work.nucleotides))
    assert (proteins[-1], nucleotides[-1]) == longest
    assert proteins[len(proteins) // 2] >= longest[0] - 1  # most are full
    assert proteins[0] < 0.9 * longest[0]  # some are not
    assert not any("*" in protein for protein in work.proteins)
    assert work == random_frames(mix, 300)


def test_made_up_frames_are_open(tmp_path):
    work = random_frames("300", 20)
    path = tmp_path / "frames.fa"
    path.write_bytes(fasta_bytes(zip(map(str, range(20)), work.nucleotides, strict=True)))
    found = frames_of_file(path, 300)
    for protein, nucleotide in zip(work.proteins, work.nucleotides, strict=True):
        assert protein in found.proteins
        assert nucleotide[: 3 * len(protein)] in {n[: 3 * len(protein)] for n in found.nucleotides}
    few = found.thinned(5)
    assert len(few.proteins) == len(few.nucleotides) == len(few.chunks) == 5
    assert found.thinned(10**6) is found


def test_calls_of_frames_and_chunks_are_compared():
    exact = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]])
    scores = exact.clone()
    scores[2] = torch.tensor([0.4, 0.6])  # frame 3 turns, and with it chunk 5
    found = labels_agree(scores, exact, [2, 2, 5, 7])
    assert found == {
        "frames": 0.75, "chunks": pytest.approx(2 / 3), "frames_compared": 4, "chunks_compared": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("frames", "chunks", "compared", "said"),
    [
        (1.0, 1.0, 1000, True),
        (0.999, 0.999, 5000, True),
        (0.9995, 0.9985, 5000, False),
        (0.998, 1.0, 5000, False),
        (1.0, 1.0, 999, None),
    ],
)
def test_a_precision_is_recommended_by_its_labels(frames, chunks, compared, said):
    labels = {"frames": frames, "chunks": chunks, "chunks_compared": compared}
    assert agrees_with_fp32(labels) is said
    assert agrees_with_fp32(None) is None


def test_names_of_models():
    assert parse_model("dnabert-s", "random").name == "dnabert-s"
    assert parse_model("zhihan1996/DNABERT-S", "random").name == "dnabert-s"
    assert parse_model("esm2_t6_8M_UR50D", "random").name == "esm2_t6_8M_UR50D"
    assert parse_model("esm2:2x48x4", "random").name == "esm2:2x48x4"
    with pytest.raises(UsageError, match="not a model that can be measured"):
        parse_model("esm2:", "random")
