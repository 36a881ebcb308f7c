"""Which proteins a model is trained on, and which ones it is measured on.

The parts of a split by clusters hold no similar proteins, so that a model is tested on proteins
unlike those it has seen. Two proteins of which more than 40 % of the residues of the shorter one
are identical belong to one cluster, and so does what is joined through others (single linkage).
Identity is counted in a global alignment without costs for gaps at the ends.

Aligning all pairs would take hours. Pairs are aligned only if they share enough words of four
residues: in 400 alignments of random pairs of serpins, those with 40 % of identical residues or
more shared at least 0.04 words per residue of the shorter one. Pairs that share many words are
joined without an alignment, which can only make clusters larger.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from virnucpro.columns import read_table
from virnucpro.errors import InputError
from virnucpro.events import Show, StepAdvanced, StepStarted
from virnucpro.rcl.features import AMINO_ACIDS
from virnucpro.rcl.proteins import AnnotatedProtein
from virnucpro.rcl.settings import RclTrainingSettings
from virnucpro.training.data.dataset import PARTS, Part

IDENTITY = 0.4
WORD = 4
LEAST_SHARED = 0.03  # words per residue of the shorter protein, below which a pair is not aligned
CERTAIN_SHARED = 0.15  # from which a pair is joined without an alignment
# Costs per residue; with BLOSUM62 the identities are those of affine gaps (11, 1) within 2 %.
GAP = 6
TIE_BREAK = 2048  # more than the identical residues by which two best alignments differ
TIED = 0.06  # the most by which their shares differed, in 23,000 pairs
BLOCK = 256  # proteins that are compared with all others at once

NO_AMINO_ACID = re.compile(f"[^{AMINO_ACIDS}]")
COLUMNS = ("id", "part", "cluster", "length", "rcl_start", "rcl_end")


def cluster_proteins(sequences: Sequence[str], show: Show) -> list[int]:
    """Return the cluster of each protein: the number of its first protein.

    Needs parasail.
    """
    from scipy.cluster.hierarchy import DisjointSet

    texts = [NO_AMINO_ACID.sub("X", sequence.upper()) for sequence in sequences]
    sets = DisjointSet(range(len(texts)))
    pairs, shared = _candidates(texts)
    show(StepStarted("comparing proteins", len(pairs)))
    # The most similar pairs come first: most others then are in one cluster already.
    order = np.argsort(-shared, kind="stable")
    for (one, two), words in zip(pairs[order].tolist(), shared[order].tolist(), strict=True):
        show(StepAdvanced(1))
        if sets.connected(one, two):
            continue
        if words >= CERTAIN_SHARED or identity(texts[one], texts[two]) > IDENTITY:
            sets.merge(one, two)
    first = {number: min(members) for members in sets.subsets() for number in members}
    return [first[number] for number in range(len(texts))]


def identity(one: str, two: str) -> float:
    """Return the share of the residues of the shorter protein that are identical in an alignment.

    Of all best alignments it is one with the most identical residues, if these are about
    ``IDENTITY`` or more. Letters are capitals; those that are not amino acids are X.
    """
    import parasail

    shorter = min(len(one), len(two))
    aligned = parasail.sg_stats_striped_16(one, two, GAP, GAP, parasail.blosum62)
    if aligned.saturated or aligned.matches / shorter > IDENTITY - TIED:
        gap = GAP * TIE_BREAK
        aligned = parasail.sg_stats_striped_32(one, two, gap, gap, _tie_breaking_scores())
    return float(aligned.matches / shorter)


@cache
def _tie_breaking_scores() -> Any:
    """Return BLOSUM62 times ``TIE_BREAK``, with one more for residues that are identical."""
    import parasail

    scores = parasail.blosum62.copy()
    rows = scores.matrix
    for one, two in np.ndindex(rows.shape):
        scores[one, two] = int(rows[one, two]) * TIE_BREAK + int(one == two)
    return scores


def _candidates(texts: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the pairs that may be similar, ``[pairs, 2]``, and their shared words per residue."""
    from sklearn.feature_extraction.text import CountVectorizer

    words = CountVectorizer(
        analyzer="char", ngram_range=(WORD, WORD), lowercase=False, binary=True, dtype=np.int32
    )
    table = words.fit_transform(["X" * WORD, *texts])[1:]  # it fails where no text has a word
    lengths = np.array([len(text) for text in texts])
    pairs, shares = [], []
    for start in range(0, len(texts), BLOCK):
        counts = (table[start : start + BLOCK] @ table[start:].T).tocoo()
        one, two = counts.row + start, counts.col + start
        shared = counts.data / np.minimum(lengths[one], lengths[two])
        chosen = (one < two) & (shared >= LEAST_SHARED)
        pairs.append(np.stack([one[chosen], two[chosen]], axis=1).astype(np.int64))
        shares.append(shared[chosen])
    return np.concatenate(pairs), np.concatenate(shares)


def random_split(count: int, train_split: float, seed: int) -> list[Part]:
    """Return the part of each of ``count`` proteins, as RCL-identifier assigns it."""
    from sklearn.model_selection import train_test_split

    _, chosen = train_test_split(range(count), test_size=1 - train_split, random_state=seed)
    held_out = set(chosen)
    return ["validation" if number in held_out else "train" for number in range(count)]


def cluster_split(
    proteins: Sequence[AnnotatedProtein], train_split: float, seed: int, show: Show
) -> tuple[list[Part], list[int]]:
    """Return part and cluster of each protein; no cluster is in two parts.

    Of the proteins with an RCL, and of those without, half of what is not for training goes to
    test and half to validation. Clusters are drawn in an order that follows from ``seed`` and
    their members. A cluster that would not fit any more is left for training.
    """
    clusters = cluster_proteins([protein.sequence for protein in proteins], show)
    members: dict[int, list[int]] = {}
    for number, cluster in enumerate(clusters):
        members.setdefault(cluster, []).append(number)

    def place(cluster: int) -> str:
        first = min(proteins[number].sequence for number in members[cluster])
        return hashlib.sha256(f"{seed}\t{first}".encode()).hexdigest()

    parts: list[Part] = ["train"] * len(proteins)
    for has_rcl in (True, False):
        chosen = [
            cluster
            for cluster, numbers in members.items()
            if any(proteins[number].has_rcl for number in numbers) == has_rcl
        ]
        total = sum(len(members[cluster]) for cluster in chosen)
        held_out: tuple[Part, Part] = ("test", "validation")
        for part in held_out:
            room = round(total * (1 - train_split) / 2)
            for cluster in sorted(chosen, key=place):
                numbers = members[cluster]
                if parts[numbers[0]] == "train" and len(numbers) <= room:
                    room -= len(numbers)
                    for number in numbers:
                        parts[number] = part
    return parts, clusters


def divided(
    proteins: Sequence[AnnotatedProtein], settings: RclTrainingSettings, show: Show
) -> tuple[Sequence[Part], Sequence[int] | None]:
    """Return the part of each protein, and its cluster where parts are made of clusters."""
    share, seed = settings.train_split, settings.seed
    if settings.split == "clusters":
        return cluster_split(proteins, share, seed, show)
    if settings.split == "random":
        return random_split(len(proteins), share, seed), None
    return split_of_table(proteins, Path(settings.split)), None


def split_text(
    proteins: Sequence[AnnotatedProtein], parts: Sequence[Part], clusters: Sequence[int] | None
) -> bytes:
    """Return the table ``split.tsv`` of a training: part and cluster of each protein."""
    lines = ["\t".join(COLUMNS)]
    for number, (protein, part) in enumerate(zip(proteins, parts, strict=True)):
        cluster = "" if clusters is None else proteins[clusters[number]].accession
        region = [str(protein.start), str(protein.end)] if protein.has_rcl else ["", ""]
        fields = [protein.accession, part, cluster, str(len(protein.sequence)), *region]
        lines.append("\t".join(fields))
    return ("\n".join(lines) + "\n").encode()


def split_of_table(
    proteins: Sequence[AnnotatedProtein], path: Path, *, missing_part: Part | None = None
) -> list[Part]:
    """Return the part that a table with the columns ``id`` and ``part`` gives each protein.

    ``missing_part`` is the part where it gives none. An id that occurs several times, as often in
    the table as among the proteins, is taken in the same order.
    """
    table = read_table(path)
    if not {"id", "part"} <= set(table) or not table.part.isin(PARTS).all():
        raise InputError(f"{path} needs the columns id and part, which is {', '.join(PARTS)}")
    by_id: dict[str, list[Part]] = table.groupby("id").part.agg(list).to_dict()
    parts: list[Part] = []
    for protein in proteins:
        entries = by_id.get(protein.accession, [missing_part] if missing_part else [])
        if not entries:
            raise InputError(f"{path} gives no part to {protein.accession}")
        parts.append(entries.pop(0) if len(entries) > 1 else entries[0])
    return parts
