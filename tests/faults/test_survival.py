"""Commands that are disturbed: the next start finishes them, and their results are the same."""

from __future__ import annotations

import pytest

from tests.faults.survival import COMMANDS, DISTURBANCES, Survival

SAMPLE = 1  # of each disturbance
OF_ALL = ("stop", "ENOSPC", "SIGINT", "flipped bit")  # the toy run meets the others, too


@pytest.fixture(scope="module", params=COMMANDS)
def survival(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Survival:
    """Each command."""
    return Survival(COMMANDS[request.param], tmp_path_factory.mktemp("survival"))


@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("sample", [SAMPLE, pytest.param(10**9, marks=pytest.mark.slow)])
def test_every_disturbance_is_survived(survival, disturbance, sample, request):
    """Of each disturbance another sample is taken, which covers more."""
    is_toy = "toy" in request.node.callspec.id
    if sample == SAMPLE and not is_toy and disturbance not in OF_ALL:
        pytest.skip("only all of them")
    numbers = survival.numbers(disturbance)
    step = max(1, len(numbers) // sample)
    numbers = numbers[7 * DISTURBANCES.index(disturbance) % step :: step][:sample]
    problems = {number: survival.survives(disturbance, number) for number in numbers}
    assert not {number: problem for number, problem in problems.items() if problem}
