"""Viral regions are found relative to the record's own background."""

from __future__ import annotations

import math
import random
from itertools import pairwise, product

import numpy as np
import pytest

from tests.declared import Chunk, chunks_of
from virnucpro.io.frames import chunk_spans
from virnucpro.stages import regions
from virnucpro.stages.genes import Hit, Kind
from virnucpro.stages.regions import Region, region_fdr, region_tier
from virnucpro.stages.repeats import in_arrays

HOST, VIRUS, SPREAD = -2.0, 1.5, 1.0


def chunk(number: int, start: int, stop: int, log_odds: float | None) -> Chunk:
    name = f"r_chunk_{number}"
    if log_odds is None:
        return Chunk(name, start, stop, "no_open_frame", 0, "NA", "NA")
    virus = 1 / (1 + math.exp(-log_odds))
    return Chunk(name, start, stop, "scored", 1, f"{1 - virus:.8g}", f"{virus:.8g}")


def record(
    *parts: tuple[int, float],
    length: int | None = None,
    missing: float = 0.0,
    seed: int = 0,
    spread: float = SPREAD,
) -> tuple[int, list[Chunk]]:
    """Return length and chunks of a record of parts with (number of chunks, mean log odds)."""
    generator = np.random.default_rng(seed)
    levels = np.repeat([level for _, level in parts], [count for count, _ in parts])
    values = levels + generator.normal(0, spread, len(levels))
    lost = generator.random(len(levels)) < missing
    length = length or 500 * len(levels)
    spans = chunk_spans(length, 500)
    return length, [
        chunk(i + 1, *span, None if none else value)
        for i, (span, value, none) in enumerate(zip(spans, values, lost, strict=True))
    ]


def find_regions(length: int, chunks: list[Chunk], sequence: str | None = None) -> list[Region]:
    return regions.find_regions(length, chunks_of(chunks), None, sequence)


def only(regions: list[Region]) -> Region:
    assert len(regions) == 1
    return regions[0]


FOUND = {
    "a provirus": (((80, HOST), (40, VIRUS), (80, HOST)), {}, (40_000, 60_000), 1000),
    "weak, in a low background": (((100, -4.0), (50, -0.5), (100, -4.0)), {}, (50_000, 75_000), 1000),
    "beside an island": (
        ((100, -3.0), (30, 0.5), (26, -1.6), (100, -3.0)), {}, (50_000, 65_000), 1000
    ),
    "beside a remnant at the end": (((26, -1.4), (30, 0.5), (100, -3.0)), {}, (13_000, 28_000), 1000),
    "half of a record": (((40, HOST), (40, VIRUS)), {}, (20_000, 40_000), 1000),
    "half of the chunks": (
        ((120, HOST), (60, VIRUS), (120, HOST)), {"missing": 0.5}, (60_000, 90_000), 2000
    ),
    "an odd length": (((60, HOST), (40, VIRUS)), {"length": 49_777}, (30_000, 49_777), 1000),
    "high scores": (((80, HOST), (24, 5.0), (80, HOST)), {"seed": 7}, (40_000, 52_000), 0),
    "twice the scale": (
        ((100, 2 * HOST), (40, 2 * VIRUS), (100, 2 * HOST)), {"spread": 2.0}, (50_000, 70_000), 2000
    ),
    "shifted": (((100, HOST + 1), (40, VIRUS + 1), (100, HOST + 1)), {}, (50_000, 70_000), 2000),
}  # fmt: skip


@pytest.mark.parametrize(("parts", "options", "place", "near"), FOUND.values(), ids=FOUND.keys())
def test_a_region_is_found_in_its_place(parts, options, place, near):
    length, chunks = record(*parts, **options)
    region = only(find_regions(length, chunks))
    assert abs(region.start - place[0]) <= near
    assert abs(region.stop - place[1]) <= near
    inside = [c for c in chunks if region.start <= c.start and c.stop <= region.stop]
    assert region.chunks == len(inside)
    assert region.chunks_scored == sum(c.status == "scored" for c in inside)
    assert region.at_edge == (region.stop == length)
    assert region.flank_score is not None
    assert region.flank_score < region.score
    assert region.in_host == (region.stop < length)


NONE = {
    "level -5": (((2000, -5.0),), {}),
    "level -1": (((250, -1.0),), {}),
    "level 0": (((2000, 0.0),), {}),
    "level 1": (((2000, 1.0),), {}),
    "short, near viruses": (((100, 0.4),), {"spread": 1.2}),
    "wide, near viruses": (((120, 1.0),), {"spread": 2.6}),
    "viral as a whole": (((80, VIRUS),), {}),
    "short": (((9, HOST), (10, VIRUS)), {}),
    "one chunk": (((1, VIRUS),), {}),
    "no score": (((100, HOST),), {"missing": 1.0}),
    "single high chunks": (((50, HOST), (2, 12.0), (50, HOST)), {}),
    "wide": (((1000, -3.5),), {"spread": 1.8}),
    "wider": (((1000, HOST),), {"spread": 3.0}),
}


@pytest.mark.parametrize(("parts", "options"), NONE.values(), ids=NONE.keys())
def test_no_region(parts, options):
    for seed in range(10):
        assert find_regions(*record(*parts, seed=seed, **options)) == []
    assert find_regions(0, []) == []


def test_a_region_at_the_edge_reaches_it_across_chunks_without_a_score():
    length, chunks = record((40, VIRUS), (80, HOST))
    for i in range(3):
        chunks[i] = chunk(i + 1, chunks[i].start, chunks[i].stop, None)
    region = only(find_regions(length, chunks))
    assert (region.start, region.at_edge) == (0, True)
    assert region.chunks == region.chunks_scored + 3


def test_a_virus_has_no_region_for_two_chunks_that_look_like_a_host():
    for seed in range(5):
        assert find_regions(*record((2, HOST), (40, VIRUS), seed=seed)) == []
        assert find_regions(*record((8, HOST), (40, VIRUS), seed=seed)) != []


def test_regions_that_are_placed_anew_stay_apart():
    found = 0
    gaps = (((8, HOST),), SPREAD), (((4, HOST), (2, 12.0), (4, HOST)), 0.3)  # two outliers
    for seed, (gap, spread) in product(range(40), gaps):
        parts = ((30, HOST), (12, 3.0), *gap, (12, 3.0), (30, HOST))
        length = 500 * sum(count for count, _ in parts) - 12 * seed  # chunks overlap the more
        regions = find_regions(*record(*parts, length=length, seed=seed, spread=spread))
        found += len(regions)
        for first, second in pairwise(regions):
            assert first.stop <= second.start
    assert found > 120


def test_scores_of_exactly_0_and_1_are_taken():
    length, chunks = record((60, HOST), (20, VIRUS), (60, HOST))
    for i, each in enumerate(chunks):
        virus = "1.0" if 60 <= i < 80 else "0.0"
        chunks[i] = each._replace(others=f"{1 - float(virus)}", virus=virus)
    region = only(find_regions(length, chunks))
    assert (region.start, region.stop) == (30_000, 40_000)


def test_the_score_of_a_region_pays_for_each_end_within_the_record():
    """Six chunks of the most evidence have 0.8 each, and a change of state costs 1.8."""
    for parts, evidence in (
        (((60, HOST), (6, 12.0), (60, HOST)), 6 * 0.8 - 2 * 1.8),
        (((60, HOST), (6, 12.0)), 6 * 0.8 - 1.8),
        (((6, 12.0), (60, HOST)), 6 * 0.8 - 1.8),
    ):
        region = only(find_regions(*record(*parts, spread=0.1)))
        assert region.chunks == 6
        assert region.score == pytest.approx(math.tanh(evidence / 2))


def _drawn(length: int, gc: float = 0.5, seed: int = 0) -> str:
    weights = [1 - gc, gc, gc, 1 - gc]
    return "".join(random.Random(seed).choices("ACGT", weights, k=length))


def _copies(unit: str, count: int, share: float, between: int, gc: float) -> str:
    """Return copies of a unit, of whose bases a share is changed, with other bases between them."""
    draw, parts = random.Random(1), []
    for number in range(count):
        changed = [draw.choice("ACGT") if draw.random() < share else base for base in unit]
        parts += ["".join(changed), _drawn(between, gc, number)]
    return "".join(parts)


REPEATS = {
    "a phage": (_drawn(40_000), False),
    "of many G and C": (_drawn(40_000, 0.75), False),
    "two copies of a gene": (_drawn(20_000) + _drawn(20_000), False),
    "gaps": (_drawn(9_000) + 2_000 * "N" + _drawn(9_000, seed=2), False),
    "short": ("ACGT", False),
    "genes like those of PE_PGRS": (_copies("GGCGGCGCCGGCGGCAACGGCGGG", 200, 0.1, 60, 0.7), True),
    "an array like attC": (_copies(_drawn(110), 60, 0.2, 500, 0.45), True),
    "a satellite": (_copies(_drawn(171), 120, 0.15, 0, 0.5), True),
    "CRISPR": (_copies(_drawn(36, seed=3), 140, 0.0, 35, 0.5), True),
    "in small letters": (_copies(_drawn(110), 60, 0.1, 500, 0.45).lower(), True),
}


@pytest.mark.parametrize(("sequence", "is_array"), REPEATS.values(), ids=REPEATS.keys())
def test_arrays_of_repeats(sequence, is_array):
    found = in_arrays(sequence, np.arange(0, len(sequence), 500))
    assert set(found.tolist()) == {is_array}


ARRAY = _copies(_drawn(110), 40, 0.1, 500, 0.45)[:20_000]  # 40 chunks


@pytest.mark.parametrize(
    ("parts", "left"),
    [
        ((ARRAY,), []),
        ((_drawn(20_000, seed=1),), [(40_000, 60_000)]),
        ((ARRAY, _drawn(20_000, seed=1)), [(60_000, 80_000)]),
        ((_drawn(20_000, seed=1), ARRAY), [(40_000, 60_000)]),
        (
            (_drawn(20_000, seed=1), ARRAY, _drawn(20_000, seed=2)),
            [(40_000, 60_000), (80_000, 100_000)],
        ),
        ((ARRAY, _drawn(1_500, seed=1), ARRAY), []),  # too few chunks are left
    ],
)
def test_arrays_of_repeats_end_a_region_or_split_it(parts, left):
    viral = sum(map(len, parts)) // 500
    length, chunks = record((80, HOST), (viral, VIRUS), (80, HOST))
    sequence = "".join([_drawn(40_000, seed=3), *parts, _drawn(40_000, seed=4)])
    found = find_regions(length, chunks, sequence)
    assert len(found) == len(left)
    for region, (start, stop) in zip(found, left, strict=True):
        assert region.start == pytest.approx(start, abs=2_500)
        assert region.stop == pytest.approx(stop, abs=2_500)
        assert region.chunks == region.chunks_scored == (region.stop - region.start) // 500


def test_flanks_are_hosts_where_either_side_scores_as_one():
    """So lambda, of which the right half looks more viral than the left one, has no region."""
    for parts, in_host in (
        (((40, HOST), (40, VIRUS), (40, HOST)), True),
        (((40, HOST), (40, VIRUS)), False),  # at an end of the record
        (((40, -5.0), (40, VIRUS), (8, 0.3)), False),
    ):
        length, chunks = record(*parts)
        assert [region.in_host for region in find_regions(length, chunks)] == [in_host]


def _hits(*places: int, marker: bool) -> list[Hit]:
    """Genes of 900 bases that begin at these places."""
    kind: Kind = "host marker" if marker else "hallmark"
    return [Hit(place, place + 900, f"function {place}", kind) for place in places]


def with_hits(length: int, chunks: list[Chunk], hits: list[Hit]) -> list[Region]:
    return regions.find_regions(length, chunks_of(chunks), None, None, hits)


def test_hallmarks_make_a_region_of_weak_scores_and_markers_undo_it():
    weak = record((80, HOST), (14, -0.6), (80, HOST), spread=0.5)
    places = (41_000, 43_000, 45_000)
    assert with_hits(*weak, []) == []
    region = only(with_hits(*weak, _hits(*places, marker=False)))
    assert 38_000 <= region.start <= 41_000
    assert 45_500 <= region.stop <= 48_500
    both = _hits(*places, marker=False) + _hits(*(place + 1000 for place in places), marker=True)
    assert with_hits(*weak, both) == []


def test_a_region_reaches_over_one_host_marker_and_not_over_a_cluster():
    found = record((80, HOST), (60, VIRUS), (80, HOST))
    whole = only(with_hits(*found, []))
    one = _hits(54_000, marker=True)
    region = only(with_hits(*found, one))
    assert (region.start, region.stop) == (whole.start, whole.stop)
    assert region.score < whole.score or region.score > 0.999
    cluster = _hits(52_000, 53_000, 54_000, 55_000, marker=True)
    first, second = with_hits(*found, cluster)
    assert first.stop <= 52_500 < 55_000 <= second.start
    at_the_end = with_hits(*found, _hits(66_000, 67_000, 68_500, marker=True))
    assert only(at_the_end).stop <= 66_500


def test_a_part_of_a_virus_is_a_region_where_the_rest_has_host_markers():
    found = record((40, -0.5), (40, VIRUS), (40, -0.5), spread=0.5)
    regions_of = [with_hits(*found, hits) for hits in ([], _hits(5000, marker=True))]
    assert [[region.in_host for region in own] for own in regions_of] == [[False], [True]]


def test_the_rate_of_regions_falls_with_their_number_and_rises_with_what_was_searched():
    rates = [
        region_fdr(np.array(scores), bases)
        for scores, bases in (
            ([0.9], 1e6),
            ([0.9], 3e6),
            ([0.9] * 3, 3e6),
            ([0.4, 0.9999, 0.99], 4e6),
            ([1.0], 1e9),
            ([0.5], 1e9),
            ([], 1e6),
        )
    ]
    one, three, equal, mixed, certain, doubtful, none = rates
    assert three == pytest.approx([3 * each for each in one])
    assert equal == pytest.approx(one * 3)
    assert mixed[1] <= mixed[2] <= mixed[0] < 1
    assert (certain, doubtful, none) == ([0.0], [1.0], [])
    assert region_fdr(np.array([0.9, 0.5]), math.nan) == [None, None]


@pytest.mark.parametrize(
    ("score", "length", "fdr", "hallmarks", "tier"),
    [
        (0.9, 20_000, 0.05, None, "high"),
        (0.9, 20_000, None, None, "high"),
        (0.9, 90_000, 0.05, None, "high"),
        (0.7, 20_000, 0.05, None, "medium"),
        (0.7, 20_000, None, None, "low"),
        (0.9, 20_000, 0.06, None, "medium"),
        (0.9, 20_000, 0.26, None, "low"),
        (0.9, 20_000, 0.05, 0, "high"),  # absence tells nothing of a short region
        (0.9, 90_000, 0.05, 0, "low"),
        (0.4, 90_000, 0.9, 1, "high"),
    ],
)
def test_the_tier_of_a_region(score, length, fdr, hallmarks, tier):
    assert region_tier(score, length, fdr, hallmarks) == tier
