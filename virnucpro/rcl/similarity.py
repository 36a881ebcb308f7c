"""Clusters of similar proteins, so that a model is tested on proteins unlike those it has seen.

Two proteins of which more than 40 % of the residues of the shorter one are identical belong to one
cluster, and so does what is joined through others (single linkage): no protein of a cluster is that
similar to a protein of another one. Identity is counted in a global alignment without costs for
gaps at the ends.

Aligning all pairs would take hours. Pairs are aligned only if they share enough words of four
residues: in 400 alignments of random pairs of serpins, those with 40 % of identical residues or
more shared at least 0.04 words per residue of the shorter one. Pairs that share many words are
joined without an alignment, which can only make clusters larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from virnucpro.events import StepProgress
from virnucpro.rcl.encodings import AMINO_ACIDS, ROW_OF_BYTE, UNKNOWN

IDENTITY = 0.4
WORD = 4
LEAST_SHARED = 0.03  # words per residue of the shorter protein, below which a pair is not aligned
CERTAIN_SHARED = 0.15  # from which a pair is joined without an alignment
GAP = -6.0  # per residue; with BLOSUM62 the identities are those of affine gaps (11, 1) within 2 %
BLOCK = 256  # proteins that are compared with all others at once

LETTERS = len(AMINO_ACIDS) + 1
# Every byte as a letter; those that are no amino acids are X.
TEXT = np.frombuffer((AMINO_ACIDS + UNKNOWN).encode(), np.uint8)[ROW_OF_BYTE]


def cluster_proteins(
    sequences: Sequence[str], progress: StepProgress | None = None
) -> npt.NDArray[np.int64]:
    """Return the cluster of each protein: int64 ``[n]``, the number of its first protein.

    Needs scipy and Biopython.
    """
    from scipy.cluster.hierarchy import DisjointSet

    texts = [TEXT[np.frombuffer(text.upper().encode(), np.uint8)].tobytes() for text in sequences]
    sets = DisjointSet(range(len(texts)))
    first_with: dict[bytes, int] = {}
    for number, text in enumerate(texts):
        sets.merge(first_with.setdefault(text, number), number)
    pairs, shared = _candidates(texts)
    if progress is not None:
        progress.begin("comparing proteins", len(pairs))
    aligner = _aligner()
    # The most similar pairs come first: most others then are in one cluster already.
    order = np.argsort(-shared, kind="stable")
    for (one, two), words in zip(pairs[order].tolist(), shared[order].tolist(), strict=True):
        if progress is not None:
            progress.advance(1)
        if sets.connected(one, two):
            continue
        if words >= CERTAIN_SHARED or identity(texts[one], texts[two], aligner) > IDENTITY:
            sets.merge(one, two)
    clusters = np.zeros(len(texts), np.int64)
    for members in sets.subsets():
        clusters[list(members)] = min(members)
    return clusters


def identity(one: bytes, two: bytes, aligner: Any = None) -> float:
    """Return the share of the residues of the shorter protein that are identical in an alignment.

    Letters are capitals; those that are not amino acids are X. ``aligner`` is a PairwiseAligner.
    """
    alignment = (aligner or _aligner()).align(one.decode(), two.decode())[0]
    first, second = np.frombuffer(one, np.uint8), np.frombuffer(two, np.uint8)
    identical = 0
    for (begin1, begin2), (end1, end2) in pairwise(alignment.coordinates.T.tolist()):
        if end1 > begin1 and end2 > begin2:
            identical += int((first[begin1:end1] == second[begin2:end2]).sum())
    return identical / min(len(one), len(two))


def _aligner() -> Any:
    from Bio.Align import PairwiseAligner, substitution_matrices

    aligner: Any = PairwiseAligner()  # type: ignore[no-untyped-call]
    aligner.mode = "global"
    aligner.substitution_matrix = substitution_matrices.load("BLOSUM62")  # type: ignore[no-untyped-call]
    aligner.open_gap_score = aligner.extend_gap_score = GAP
    aligner.end_gap_score = 0.0
    return aligner


def _words(text: bytes) -> npt.NDArray[np.int64]:
    """Return the different words of a protein, as numbers in rising order."""
    codes = ROW_OF_BYTE[np.frombuffer(text, np.uint8)]
    count = max(len(codes) - WORD + 1, 0)
    words = np.zeros(count, np.int64)
    for place in range(WORD):
        words = words * LETTERS + codes[place : place + count]
    return np.unique(words)


def _candidates(texts: Sequence[bytes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the pairs that may be similar, ``[pairs, 2]``, and their shared words per residue."""
    from scipy.sparse import csr_array

    words = [_words(text) for text in texts]
    rows = np.repeat(np.arange(len(texts)), [len(w) for w in words])
    columns = np.concatenate([np.zeros(0, np.int64), *words])
    shape = (len(texts), LETTERS**WORD)
    table = csr_array((np.ones(len(columns), np.int32), (rows, columns)), shape=shape)
    lengths = np.array([len(text) for text in texts])

    pairs, shares = [], []
    for start in range(0, len(texts), BLOCK):
        counts = (table[start : start + BLOCK] @ table.T).tocoo()
        one, two = counts.row + start, counts.col
        shared = counts.data / np.minimum(lengths[one], lengths[two])
        chosen = (one < two) & (shared >= LEAST_SHARED)
        pairs.append(np.stack([one[chosen], two[chosen]], axis=1).astype(np.int64))
        shares.append(shared[chosen])
    return np.concatenate(pairs), np.concatenate(shares)
