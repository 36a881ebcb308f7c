"""Viral regions are found relative to the record's own background."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from virnucpro.io.chunks import chunk_spans
from virnucpro.stages.calls import Chunk
from virnucpro.stages.regions import Region, find_regions

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


def only(regions: list[Region]) -> Region:
    assert len(regions) == 1
    return regions[0]


def test_a_provirus_is_found_with_its_ends_and_its_flanks() -> None:
    region = only(find_regions(*record((80, HOST), (40, VIRUS), (80, HOST))))
    assert abs(region.start - 40_000) <= 1000
    assert abs(region.stop - 60_000) <= 1000
    assert region.chunks == region.chunks_scored == (region.stop - region.start) // 500
    assert region.score > 0.9
    assert region.flank_score is not None
    assert region.flank_score < -0.5
    assert not region.at_edge


def test_a_host_has_no_region_whatever_its_level() -> None:
    for level in (-5.0, HOST, 0.0, 1.0):
        assert find_regions(*record((2000, level))) == []


def test_a_short_host_with_a_level_near_that_of_viruses_has_no_region() -> None:
    found = [find_regions(*record((100, 0.4), seed=seed, spread=1.2)) for seed in range(20)]
    assert sum(map(len, found)) == 0


def test_a_weak_virus_is_found_against_a_low_background_though_none_of_its_chunks_is_likely() -> (
    None
):
    region = only(find_regions(*record((100, -4.0), (50, -1.0), (100, -4.0))))
    assert abs(region.start - 50_000) <= 1000
    assert abs(region.stop - 75_000) <= 1000


@pytest.mark.parametrize(("times", "more"), [(2.0, 0.0), (3.0, 2.0), (1.0, 1.0), (1.0, -1.0)])
def test_a_model_whose_log_odds_have_another_scale(times: float, more: float) -> None:
    parts = [(count, times * level + more) for count, level in ((100, HOST), (40, VIRUS))]
    for seed in range(5):
        region = only(find_regions(*record(*parts, parts[0], seed=seed, spread=times * SPREAD)))
        assert abs(region.start - 50_000) <= 2000
        assert abs(region.stop - 70_000) <= 2000


def test_the_same_scores_are_background_in_another_record() -> None:
    assert find_regions(*record((250, -1.0))) == []


def test_half_of_a_record_can_be_viral() -> None:
    region = only(find_regions(*record((40, HOST), (40, VIRUS))))
    assert abs(region.start - 20_000) <= 1000
    assert region.stop == 40_000
    assert region.at_edge


def test_two_regions_are_given_in_order() -> None:
    parts = ((60, HOST), (30, VIRUS), (60, HOST), (20, VIRUS), (60, HOST))
    first, second = find_regions(*record(*parts))
    assert first.stop < second.start
    assert abs(second.start - 75_000) <= 1000


def test_chunks_without_a_score_say_nothing() -> None:
    length, chunks = record((120, HOST), (60, VIRUS), (120, HOST), missing=0.5)
    region = only(find_regions(length, chunks))
    assert abs(region.start - 60_000) <= 2000
    assert abs(region.stop - 90_000) <= 2000
    inside = [c for c in chunks if region.start <= c.start and c.stop <= region.stop]
    assert region.chunks == len(inside)
    assert region.chunks_scored == sum(c.status == "scored" for c in inside) < region.chunks


def test_a_region_at_the_edge_reaches_it_across_chunks_without_a_score() -> None:
    length, chunks = record((40, VIRUS), (80, HOST))
    for i in range(3):
        chunks[i] = chunk(i + 1, chunks[i].start, chunks[i].stop, None)
    region = only(find_regions(length, chunks))
    assert region.start == 0
    assert region.at_edge
    assert region.chunks == region.chunks_scored + 3


def test_lengths_that_are_no_multiple_of_the_chunk_length() -> None:
    region = only(find_regions(*record((60, HOST), (40, VIRUS), length=49_777)))
    assert region.stop == 49_777


def test_a_record_that_is_viral_as_a_whole_has_no_region() -> None:
    for seed in range(10):
        assert find_regions(*record((80, VIRUS), seed=seed)) == []


def test_a_virus_has_no_region_for_two_chunks_that_look_like_a_host() -> None:
    for seed in range(5):
        assert find_regions(*record((2, HOST), (40, VIRUS), seed=seed)) == []
        assert find_regions(*record((8, HOST), (40, VIRUS), seed=seed)) != []


@pytest.mark.parametrize("parts", [((9, HOST), (10, VIRUS)), ((1, VIRUS),)])
def test_short_records_have_no_region(parts: tuple[tuple[int, float], ...]) -> None:
    assert find_regions(*record(*parts)) == []


def test_records_with_hardly_any_score_have_no_region() -> None:
    assert find_regions(*record((100, HOST), missing=1.0)) == []
    assert find_regions(0, []) == []


def test_single_high_chunks_are_no_region() -> None:
    assert find_regions(*record((50, HOST), (2, 12.0), (50, HOST))) == []


@pytest.mark.parametrize(("level", "spread"), [(HOST, 1.0), (-3.5, 1.8), (HOST, 3.0)])
def test_the_spread_of_a_host_is_no_region(level: float, spread: float) -> None:
    found = [find_regions(*record((1000, level), seed=s, spread=spread)) for s in range(10)]
    assert sum(map(len, found)) == 0


def test_the_ends_of_a_region_that_scores_high_are_exact() -> None:
    for seed in range(20):
        parts = ((80, HOST), (24, 5.0), (80, HOST))
        region = only(find_regions(*record(*parts, seed=seed)))
        assert (region.start, region.stop) == (40_000, 52_000)


def test_regions_that_are_placed_anew_stay_apart() -> None:
    found = 0
    for seed in range(40):
        parts = ((30, HOST), (12, 3.0), (8, HOST), (12, 3.0), (30, HOST))
        regions = find_regions(*record(*parts, seed=seed))
        found += len(regions)
        for first, second in pairwise(regions):
            assert first.stop <= second.start
    assert found > 60


def test_scores_of_exactly_0_and_1_are_taken() -> None:
    length, chunks = record((60, HOST), (20, VIRUS), (60, HOST))
    extreme = [
        c._replace(
            others="0.0" if i in range(60, 80) else "1.0",
            virus="1.0" if i in range(60, 80) else "0.0",
        )
        for i, c in enumerate(chunks)
    ]
    region = only(find_regions(length, extreme))
    assert (region.start, region.stop) == (30_000, 40_000)
