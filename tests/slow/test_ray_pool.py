"""The contract of workers and the injected faults, over the worker pool on Ray."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.ray_cluster import local_cluster, ray_pool
from tests.contract.test_workers import test_every_sequence_exactly_once_in_file_order  # noqa: F401
from tests.faults.test_pool import (  # noqa: F401 - run here over the pool of this file
    Make,
    maker,
    test_a_device_that_never_opens_does_not_hold_up_the_others,
    test_a_full_disk_lets_the_others_finish,
    test_a_spare_device_takes_over,
    test_batches_stay_smaller_where_everything_fits_then,
    test_two_bad_sequences_are_found_and_no_other_lost,
    test_when_no_device_is_left_the_run_ends,
)
from virnucpro.workers.scheduler import Workers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One node for all tests of this file."""
    with local_cluster(cpus=4):
        yield


@pytest.fixture
def pool() -> Iterator[Make]:
    """Make so many workers over the pool on Ray."""
    with maker(ray_pool) as make:
        yield make


@pytest.fixture
def workers(pool: Make) -> Workers:
    """Two workers."""
    return pool(2)
