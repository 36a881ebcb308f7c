"""Which frames of the larger class are taken, and in which order all of them are written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def quotas(sizes: Sequence[int], target: int) -> list[int]:
    """How many of each group are taken, so that ``target`` are, in proportion to its square root.

    In proportion to their size, two bacterial genomes would make up most of the class; the same
    number of each would use little of the diverse groups and all of the poor ones. The square root
    lies between: a group of a hundred times the size counts ten times. A group that has fewer
    than its due is taken whole, and the others share the rest.
    """
    if target >= sum(sizes):
        return list(sizes)
    left = float(target)
    roots = [float(np.sqrt(size)) for size in sizes]
    rest = sum(roots)
    due = [0.0] * len(sizes)
    for group in sorted(range(len(sizes)), key=lambda g: sizes[g]):
        # From the smallest on: as soon as one is not taken whole, no larger one is.
        due[group] = min(float(sizes[group]), left * roots[group] / rest if rest else 0.0)
        left -= due[group]
        rest -= roots[group]
    taken = [int(number) for number in due]
    fractions = sorted(range(len(sizes)), key=lambda g: (taken[g] - due[g], g))
    for group in fractions[: target - sum(taken)]:
        taken[group] += 1
    return taken


def shuffled(count: int, *seeds: int) -> Indices:
    """The numbers below ``count`` in an order that depends on ``seeds`` only, ``[count]``.

    Made from the raw output of PCG-64, which NumPy keeps the same between versions (NEP 19),
    unlike that of its ``permutation``.
    """
    keys = np.random.PCG64(np.random.SeedSequence(seeds)).random_raw(count)
    return np.argsort(keys, kind="stable")


def balanced(
    virus: npt.NDArray[np.bool_], groups: npt.NDArray[np.int32], *seeds: int
) -> npt.NDArray[np.bool_]:
    """Which frames to take so that both classes have as many, ``[n]``.

    ``virus`` says which are of a virus, ``groups`` which group each is of. Where a class has none,
    all are taken: there is nothing to balance.
    """
    taken = np.ones(len(virus), bool)
    counts = int((~virus).sum()), int(virus.sum())
    if min(counts) == 0 or counts[0] == counts[1]:
        return taken
    larger = virus if counts[1] > counts[0] else ~virus
    names = np.unique(groups[larger])
    members = [np.flatnonzero(larger & (groups == name)) for name in names]
    for number, (own, quota) in enumerate(
        zip(members, quotas([len(m) for m in members], min(counts)), strict=True)
    ):
        taken[own[shuffled(len(own), *seeds, number)[quota:]]] = False
    return taken
