"""Counting the words of training genomes, for the censuses of a lite encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.lite_features import LEVELS, Letters, WordCensus, Words
from virnucpro.training.lite.frames import FOLDS, RESIDUE_OF, FrameSet

# Exact words of six and five residues. Tried on the same data and thrown out again: reduced
# alphabets with spaced seeds (eight groups, 9 of 12 places), which added nothing beside these two.
WORDS = (
    Words(" ".join("ACDEFGHIKLMNPQRSTVWY"), "111111"),
    Words(" ".join("ACDEFGHIKLMNPQRSTVWY"), "11111"),
)
_BOUNDS = (1, 2, 4)  # genomes from which on a level begins
assert len(_BOUNDS) == LEVELS - 1
_MOST = 30  # genomes counted in a fold; the highest level begins far below


@dataclass(frozen=True)
class CountedWords:
    """A census of all training genomes, and one without each fold.

    ``codes`` is uint8 ``[FOLDS + 1, places]``; the last row is that of all.
    """

    words: Words
    codes: Letters

    @property
    def census(self) -> WordCensus:
        """Of all training genomes, for every other sequence."""
        return WordCensus(self.words, self.codes[FOLDS])

    def look_up(
        self, residues: Letters, clusters: npt.NDArray[np.int32]
    ) -> tuple[Letters, npt.NDArray[np.bool_]]:
        """As :meth:`Census.look_up`, each row in the census without its own fold."""
        places, whole = self.words.index(residues)
        return self.codes[(clusters % FOLDS)[:, None], places], whole


def count_words(
    words: Words, sets: Sequence[FrameSet], clusters: npt.NDArray[np.int32]
) -> CountedWords:
    """Count clusters of related genomes, not genomes: many strains are one witness.

    ``clusters`` is int32 ``[genomes]``. Takes ``18 * FOLDS`` bytes a place at its height.
    """
    counts = np.zeros((2, FOLDS, words.places), np.uint8)
    rows = [
        (frames, row)
        for frames in sets
        for row in np.array_split(
            np.argsort(clusters[frames.genomes], kind="stable"),
            np.flatnonzero(np.diff(np.sort(clusters[frames.genomes]))) + 1,
        )
    ]
    by_cluster: dict[tuple[int, bool], list[tuple[FrameSet, npt.NDArray[np.intp]]]] = {}
    for frames, row in rows:
        for virus in (False, True):
            own = row[frames.virus[row] == virus]
            if len(own):
                cluster = int(clusters[frames.genomes[own[0]]])
                by_cluster.setdefault((cluster, virus), []).append((frames, own))
    for (cluster, virus), members in by_cluster.items():
        found = []
        for frames, own in members:
            places, whole = words.index(RESIDUE_OF[frames.codons[own]])
            found.append(np.unique(places[whole]))
        seen = np.unique(np.concatenate(found))
        target = counts[int(virus), cluster % FOLDS]
        target[seen] = np.minimum(target[seen], _MOST - 1) + 1
    total = counts.sum(axis=1, dtype=np.int16)  # [2, places]
    codes = np.empty((FOLDS + 1, words.places), np.uint8)
    for fold in range(FOLDS):
        codes[fold] = _code(total - counts[:, fold])
    codes[FOLDS] = _code(total)
    return CountedWords(words, codes)


def _code(counts: npt.NDArray[np.int16]) -> Letters:
    levels = np.zeros(counts.shape, np.uint8)
    for bound in _BOUNDS:  # thirty times as fast as np.digitize
        levels += counts >= bound
    others, virus = levels
    return np.asarray(LEVELS * virus + others, np.uint8)
