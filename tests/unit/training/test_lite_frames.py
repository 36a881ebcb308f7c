"""The frames of a data set as a lite encoder is trained on them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.training_data import LENGTH, make_dataset
from tests.unit.training.lite_sets import frame_set, frames
from tests.unit.training.made_genomes import coding, mutated
from virnucpro.encoders.lite_features import NO_CODON, codons_of
from virnucpro.errors import InputError
from virnucpro.io.frames import GENETIC_CODE
from virnucpro.training.lite.frames import (
    RESIDUE_OF,
    SENSE,
    FrameSampler,
    cluster_genomes,
    load_frames,
)

CODONS = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]


def test_residues_of_codons():
    amino_acids = "ACDEFGHIKLMNPQRSTVWY"
    for number, codon in enumerate(CODONS):
        residue = GENETIC_CODE[codon]
        expected = 20 if residue == "*" else amino_acids.index(residue)
        assert RESIDUE_OF[number] == expected
    assert RESIDUE_OF[NO_CODON] == 20
    assert [CODONS[n] for n in set(range(64)) - set(SENSE.tolist())] == ["TAA", "TAG", "TGA"]


def test_every_frame_of_a_part_is_there(tmp_path):
    dataset = make_dataset(tmp_path, genomes=(3, 1, 1), codons=430, shard=7)
    sets, names = load_frames(dataset, "train")
    rows = list(dataset.frames("train"))
    assert [frames.length for frames in sets] == [LENGTH]
    found = sets[0]
    assert found.codons.shape == (len(rows), LENGTH // 3 + 1)
    assert [names[n] for n in found.genomes] == [row.genome for row in rows]
    assert found.virus.tolist() == [row.label == "virus" for row in rows]
    for numbers, column in ((found.groups, "group"), (found.chunks, "chunk")):
        pairs = set(zip(numbers.tolist(), (getattr(row, column) for row in rows), strict=True))
        assert len(pairs) == len({n for n, _ in pairs}) == len({name for _, name in pairs})
    texts = [
        line
        for number in range(1, dataset.shards("train") + 1)
        for line in dataset.layout("train").split("nucleotide", number).read_text().split("\n")
        if line and line[0] != ">"
    ]
    for text, codons in zip(texts, found.codons, strict=True):
        expected = codons_of([text])[0]
        assert codons[: len(expected)].tolist() == expected.tolist()
        assert (codons[len(expected) :] == NO_CODON).all()
    lengths = (found.codons < NO_CODON).sum(axis=1)
    assert found.whole().tolist() == (lengths >= LENGTH // 3 - 1).tolist()
    assert 0 < found.whole().sum() < len(rows)  # the last chunk of a genome is shorter


def test_ambiguous_frames_are_left_out_and_mixed_up_shards_refused(tmp_path):
    dataset = make_dataset(tmp_path, genomes=(2, 1, 1), codons=400)
    before = len(load_frames(dataset, "train")[0][0].codons)
    path = dataset.layout("train").split("nucleotide", 1)
    header, text, rest = path.read_text().split("\n", 2)
    path.write_text(f"{header}\n{text[:30]}NNN{text[33:]}\n{rest}")
    assert len(load_frames(dataset, "train")[0][0].codons) == before - 1
    path.write_text(f"{header}x\n{text}\n{rest}")
    with pytest.raises(InputError, match="not those of its table"):
        load_frames(dataset, "train")


def chunked(genome, length):
    return [genome[i : i + length] for i in range(0, len(genome) - length + 1, length)]


def same(clusters, *genomes):
    return len({int(clusters[genome]) for genome in genomes}) == 1


def test_relatives_share_a_fold():
    """A strain, a far strain, and the half of a genome are relatives; others are not."""
    base = [coding(n, 6000) for n in range(6)]
    genomes = [*base, mutated(base[0], 0.01), mutated(base[1], 0.03), base[2][:3000], coding(9, 90)]
    # 0 and 3 are bridged by a genome that is half of each.
    genomes.append(base[0][:3000] + base[3][:3000])
    sets = [frame_set([chunked(g, 300) for g in genomes], [True] * len(genomes), 300)]
    clusters = cluster_genomes(sets, len(genomes))
    assert clusters.dtype == np.int32
    assert same(clusters, 0, 6, 10, 3)
    assert same(clusters, 1, 7)
    assert same(clusters, 2, 8)
    assert len(set(clusters.tolist())) == len(genomes) - 5
    split = [frame_set([chunked(g, 300)[::2] for g in genomes], [True] * len(genomes), 300)]
    assert same(cluster_genomes([*split, *sets], len(genomes)), 0, 6, 10, 3)


def test_many_small_genomes():
    """More pairs of relatives than sampled words, and genomes with none."""
    texts = [[coding(1, 150)]] * 60 + [[coding(n, 30)] for n in range(2, 42)]
    sets = [frame_set(texts, [True] * 100, 150)]
    clusters = cluster_genomes(sets, 100)
    assert same(clusters, *range(60))
    assert len(set(clusters.tolist())) == 41


@pytest.fixture(scope="module")
def drawn_from():
    """30 virus genomes in 15 groups and one large genome of others; one genome of short frames."""
    texts = [frames(n, 3, 120) for n in range(30)]
    texts += [frames(100, 500, 120), frames(101, 20, 60)]
    return frame_set(texts, [True] * 30 + [False] * 2, 120)


def test_batches_are_balanced_and_of_one_length(drawn_from):
    clusters = np.arange(32, dtype=np.int32) * 2
    sampler, source = FrameSampler(drawn_from, clusters), np.random.default_rng(1)
    rows = {row.tobytes(): n for n, row in enumerate(drawn_from.codons[:, :39])}
    widths = set()
    for _ in range(40):
        drawn = sampler.draw(64, 0.0, source)
        assert drawn.virus.tolist() == [False] * 32 + [True] * 32
        assert (drawn.codons < 64).all()
        widths.add(drawn.codons.shape[1])
        assert (drawn.clusters[:32] == 60).all()  # never of the short frames
        if drawn.codons.shape[1] == 39:
            for codons, virus, cluster in zip(
                *(getattr(drawn, n) for n in ("codons", "virus", "clusters")), strict=True
            ):
                row = rows[codons.tobytes()]
                assert (drawn_from.virus[row], clusters[drawn_from.genomes[row]]) == (
                    virus,
                    cluster,
                )
    assert min(widths) >= 19
    assert max(widths) == 39
    assert len(widths) > 8


def test_mutations_are_as_many_as_asked_for_and_never_stops(drawn_from):
    sampler = FrameSampler(drawn_from, np.zeros(32, np.int32))
    plain = sampler.draw(2000, 0.0, np.random.default_rng(5))
    hit = sampler.draw(2000, 0.2, np.random.default_rng(5))
    assert plain.codons.shape == hit.codons.shape
    changed = plain.codons != hit.codons
    assert changed.mean() == pytest.approx(0.1, abs=0.015)  # half of the frames, 61 codons
    assert changed.any(axis=1).mean() == pytest.approx(0.5, abs=0.06)
    assert set(hit.codons.ravel().tolist()) <= set(SENSE.tolist())


def test_drawing_leaves_the_frames_as_they_were(drawn_from):
    before = drawn_from.codons.copy()
    FrameSampler(drawn_from, np.zeros(32, np.int32)).draw(500, 0.3, np.random.default_rng(2))
    assert np.array_equal(drawn_from.codons, before)


def test_small_groups_come_more_often_than_their_size():
    texts = [frames(0, 900, 120), [], frames(1, 100, 120), [], frames(2, 10, 120), []]
    made = frame_set(texts, [True, True, True, True, False, False], 120)
    drawn = FrameSampler(made, np.arange(6, dtype=np.int32)).draw(
        8000, 0.0, np.random.default_rng(3)
    )
    share = (drawn.clusters[drawn.virus] == 2).mean()
    assert share == pytest.approx(100**0.3 / (100**0.3 + 900**0.3), abs=0.02)


def test_a_missing_label():
    made = frame_set([frames(0, 3, 120)], [True], 120)
    with pytest.raises(InputError, match="no others frames of 120 bp"):
        FrameSampler(made, np.zeros(1, np.int32))
