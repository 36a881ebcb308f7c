"""What every encoder promises: a row depends on nothing but its own sequence."""

from __future__ import annotations

import pytest
import torch

from tests.unit.encoders.small import (
    LETTERS,
    fair_model,
    make_dnabert,
    open_path,
    quiet,
    save_fair,
    sequences,
)

# Batches of two to three sequences of three tokens: products of six to nine rows are what MKL
# computes in other ways on two threads than on one.
FEW = [1, 1, 2, 2, 2, 30, 30, 31, 40, 41, 3, 3, 60]
LENGTHS = [*FEW, 100, 150, 151, 166, 298, 300, 499, 700, 1030]
ODD = ["NNNNN", "ACGTRYKACGNNACGT", "AACGAACGTATG" * 8, ""]
TEXTS = {
    "protein": sequences(LENGTHS, LETTERS + "XBUZO"),
    "nucleotide": [*sequences(LENGTHS, "ACGT"), *ODD],
}
# The molecule, a small budget, others, and the least likeness of each lower precision.
KINDS = {
    "esm2": ("protein", 64, (1, 600, 100_000), {"bf16": 0.9998, "fp16": 0.99999}),
    "dnabert-s": ("nucleotide", 2, (1, 3, 100), {"bf16": 0.999, "fp16": 0.999}),
    "lite": ("nucleotide", None, (), {"bf16": 0.999}),
    "toy": ("nucleotide", None, (), {}),
    "toy-protein": ("protein", None, (), {}),
}


@pytest.fixture(scope="module")
def open_kind(tmp_path_factory):
    """Open an encoder of a kind with options."""
    folder = tmp_path_factory.mktemp("models")
    paths = {
        "esm2": save_fair(fair_model(), folder / "esm2.pt"),
        "dnabert-s": make_dnabert(folder / "dnabert"),
        "toy-protein": "toy",
    }
    return lambda kind, **options: open_path(paths.get(kind, kind), KINDS[kind][0], **options)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_depend_on_their_batch_or_order(open_kind, kind):
    molecule, small, others, _ = KINDS[kind]
    encoder, texts = open_kind(kind, budget=small), TEXTS[molecule]
    alone = torch.cat([encoder.encode([text], quiet) for text in texts])
    assert (alone.shape, alone.dtype) == ((len(texts), encoder.dim), torch.float32)
    assert bool(alone.isfinite().all())
    assert torch.pdist(alone[13:19]).min() > 1e-4  # it does look at them
    near = 1e-5 * max(1, float(alone.abs().max()))
    for budget in (small, *others):
        rows = open_kind(kind, budget=budget).encode(texts[::-1], quiet).flip(0)
        assert (rows - alone).abs().max() < near
    while encoder.shrink():
        assert (encoder.encode(texts, quiet) - alone).abs().max() < near
    assert encoder.encode([], quiet).shape == (0, encoder.dim)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_on_any_number_of_threads(open_kind, kind):
    """Also where it is opened on so many."""
    molecule, small, _, _ = KINDS[kind]
    rows = []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        rows.append(open_kind(kind, budget=small).encode(TEXTS[molecule], quiet))
    assert all(torch.equal(rows[0], others) for others in rows[1:])


@pytest.mark.parametrize(
    ("kind", "precision", "least"),
    [(kind, *each) for kind, row in KINDS.items() for each in row[3].items()],
)
def test_lower_precisions_are_close(open_kind, kind, precision, least):
    texts = [text for text in TEXTS[KINDS[kind][0]] if 30 <= len(text) < 300]
    exact = open_kind(kind).encode(texts, quiet)
    rows = open_kind(kind, precision=precision).encode(texts, quiet)
    assert rows.dtype == torch.float32
    assert float(torch.cosine_similarity(rows, exact).min()) > least


@pytest.mark.parametrize(
    ("kind", "texts", "tokens"),
    [
        (
            "esm2",
            ["MKVLA", "MKVLY", "MK"],
            6 + 6 + 4,
        ),  # four residues of each at most, and two ends
        ("dnabert-s", ["ACGT", "AACG", "NN"], (1 + 2) + (1 + 2) + (2 + 2)),  # "NN": two [UNK]
        ("toy-protein", ["MKVL", "MKVY"], 4 + 4),
    ],
)
def test_reports_count_sequences_and_tokens_as_they_are_cut(open_kind, kind, texts, tokens):
    seen: list[tuple[int, int]] = []
    encoder = open_kind(kind, budget=KINDS[kind][1], truncation=4)
    rows = encoder.encode(texts, lambda *counts: seen.append(counts))
    assert [sum(counts) for counts in zip(*seen, strict=True)] == [len(texts), tokens]
    if KINDS[kind][0] == "protein":
        assert torch.equal(rows[0], rows[1]) == (kind == "esm2")
