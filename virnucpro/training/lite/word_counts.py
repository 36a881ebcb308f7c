"""Counts of the words of training genomes, which a lite encoder looks up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.lite_features import LEVELS, Letters, WordCounts, WordPattern
from virnucpro.training.lite.frames import FOLDS, RESIDUE_OF, FrameSet

# Exact words of six and of five residues. Reduced alphabets with spaced seeds (eight groups, 9 of
# 12 positions) were tried on the same data, and added nothing beside these two.
PATTERNS = (
    WordPattern(" ".join("ACDEFGHIKLMNPQRSTVWY"), "111111"),
    WordPattern(" ".join("ACDEFGHIKLMNPQRSTVWY"), "11111"),
)
_LEVEL_STARTS = (1, 2, 4)  # the number of genomes from which on each level begins
assert len(_LEVEL_STARTS) == LEVELS - 1
_MOST_COUNTED = 30  # genomes counted per fold; the highest level begins far below


@dataclass(frozen=True)
class FoldedWordCounts:
    """The word counts of all training genomes, and those without each fold.

    ``codes`` is uint8 ``[FOLDS + 1, places]``; the last row is that of all genomes.
    """

    pattern: WordPattern
    codes: Letters

    @property
    def of_all_genomes(self) -> WordCounts:
        """Return the counts of all training genomes, which are used for every other sequence."""
        return WordCounts(self.pattern, self.codes[FOLDS])

    def look_up(
        self, residues: Letters, clusters: npt.NDArray[np.int32]
    ) -> tuple[Letters, npt.NDArray[np.bool_]]:
        """Look up the words as :meth:`WordCounts.look_up`, each row without its own fold."""
        places, whole = self.pattern.index(residues)
        return self.codes[(clusters % FOLDS)[:, None], places], whole


def count_words(
    pattern: WordPattern, sets: Sequence[FrameSet], clusters: npt.NDArray[np.int32]
) -> FoldedWordCounts:
    """Count in how many clusters of related genomes each word occurs.

    Clusters are counted, not genomes, because many strains of one species are no more evidence
    than one. ``clusters`` is int32 ``[genomes]``. At its peak this takes ``18 * FOLDS`` bytes of
    memory per place.
    """
    rows_of: dict[tuple[int, bool], list[tuple[FrameSet, npt.NDArray[np.intp]]]] = defaultdict(list)
    for frames in sets:
        frame_clusters = clusters[frames.genomes]
        order = np.argsort(frame_clusters, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(frame_clusters[order])) + 1):
            for virus in (False, True):
                label_rows = rows[frames.virus[rows] == virus]
                if len(label_rows):
                    rows_of[int(frame_clusters[label_rows[0]]), virus].append((frames, label_rows))
    counts = np.zeros((2, FOLDS, pattern.places), np.uint8)
    for (cluster, virus), members in rows_of.items():
        cluster_places = []
        for frames, rows in members:
            places, whole = pattern.index(RESIDUE_OF[frames.codons[rows]])
            cluster_places.append(np.unique(places[whole]))
        places = np.unique(np.concatenate(cluster_places))
        target = counts[int(virus), cluster % FOLDS]
        target[places] = np.minimum(target[places], _MOST_COUNTED - 1) + 1
    total = counts.sum(axis=1, dtype=np.int16)  # [2, places]
    codes = np.empty((FOLDS + 1, pattern.places), np.uint8)
    for fold in range(FOLDS):
        codes[fold] = _codes_of(total - counts[:, fold])
    codes[FOLDS] = _codes_of(total)
    return FoldedWordCounts(pattern, codes)


def _codes_of(counts: npt.NDArray[np.int16]) -> Letters:
    levels = np.zeros(counts.shape, np.uint8)
    for start in _LEVEL_STARTS:  # this is thirty times as fast as np.digitize
        levels += counts >= start
    others, virus = levels
    return np.asarray(LEVELS * virus + others, np.uint8)
