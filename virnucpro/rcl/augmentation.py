"""Made-up relatives of serpins, so that a network learns what distant ones have in common.

In training, a serpin becomes a new one each time: parts of another serpin take the place of its
own, residues are replaced as in evolution, and some are put in or left out. A profile of the
training serpins says which residues correspond to each other, and what stands in each column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virnucpro.rcl.encodings import AMINO_ACIDS, BLOSUM, UNKNOWN
from virnucpro.rcl.profile import build_profile
from virnucpro.rcl.proteins import AnnotatedProtein

# Shares of the serpins of a batch, chosen with MOST_REPLACED once, and not tuned.
JOINED, REPLACED, SHIFTED = 0.4, 0.6, 0.3
OTHERS_REPLACED = 0.3  # share of the other proteins in which residues are replaced
MOST_REPLACED = 0.7  # share of the residues of a protein that are replaced, at most
MOST_JOINTS = 3
LEAST_SHARED_COLUMNS = 50  # below which two serpins are not joined
MOST_GAPS, LONGEST_GAP = 5, 5
KEPT_LOOP = 0.7  # share of the gaps that are not made because they would take residues of the RCL
BLOSUM_SCALE = 0.3176  # the lambda of BLOSUM62: half-bit scores to odds (Karlin and Altschul 1990)
LETTERS = np.frombuffer((AMINO_ACIDS + UNKNOWN).encode(), np.uint8)
_CODE = np.full(256, len(AMINO_ACIDS), np.int64)
_CODE[LETTERS] = np.arange(len(LETTERS))
_BLOSUM_COLUMNS = "ARNDCQEGHILKMFPSTWYV"  # of the encoding

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Aligned:
    """A protein as three rows of numbers, each int64 ``[L]``.

    Attributes:
        residues: numbers of its letters in ``LETTERS``.
        labels: 1 in the RCL, 0 elsewhere.
        columns: of the profile, counted from 1; 0 for a residue between two columns.
    """

    residues: Ints
    labels: Ints
    columns: Ints

    def part(self, start: int, stop: int) -> Aligned:
        """Return residues ``start`` to ``stop``, half-open."""
        here = slice(start, stop)
        return Aligned(self.residues[here], self.labels[here], self.columns[here])


@dataclass(frozen=True)
class Relatives:
    """Makes relatives of the proteins of a training. Picklable.

    Attributes:
        serpins: the proteins with an RCL, aligned to the profile.
        numbers: for each protein its number among the serpins; -1 for the others.
        column_odds: cumulative probabilities of the amino acids in each column, ``[columns, 20]``.
        residue_odds: the same of what replaces an amino acid, ``[20, 20]``.
        background: frequencies of the amino acids, ``[20]``.
    """

    serpins: Sequence[Aligned]
    numbers: Sequence[int]
    column_odds: Floats
    residue_odds: Floats
    background: Floats

    def of(
        self, number: int, protein: AnnotatedProtein, random: np.random.Generator
    ) -> AnnotatedProtein:
        """Return a relative of ``protein``, which is that of this ``number``; or itself."""
        place = self.numbers[number]
        if place < 0:
            if random.random() >= OTHERS_REPLACED:
                return protein
            residues = _codes(protein.sequence)
            zeros = np.zeros_like(residues)
            return _protein(
                protein.accession, self._replaced(Aligned(residues, zeros, zeros), random)
            )
        relative = self.serpins[place]
        if random.random() < JOINED:
            other = self.serpins[int(random.integers(len(self.serpins)))]
            relative = _joined(relative, other, random)
        if random.random() < REPLACED:
            relative = self._replaced(relative, random)
        if random.random() < SHIFTED:
            relative = self._shifted(relative, random)
        return _protein(protein.accession, relative)

    def _replaced(self, protein: Aligned, random: np.random.Generator) -> Aligned:
        """Return it with some residues replaced, by what stands in their column or by BLOSUM62."""
        residues = protein.residues.copy()
        rate, by_column = random.uniform(0, MOST_REPLACED), random.random()
        known = residues < len(AMINO_ACIDS)
        places = np.flatnonzero((random.random(len(residues)) < rate) & known)
        from_column = (random.random(len(places)) < by_column) & (protein.columns[places] > 0)
        here, there = places[from_column], places[~from_column]
        residues[here] = _drawn(self.column_odds[protein.columns[here] - 1], random)
        residues[there] = _drawn(self.residue_odds[residues[there]], random)
        return Aligned(residues, protein.labels, protein.columns)

    def _shifted(self, protein: Aligned, random: np.random.Generator) -> Aligned:
        """Return it with a few residues put in and left out."""
        rows = [protein.residues, protein.labels, protein.columns]
        for _ in range(int(random.integers(1, MOST_GAPS + 1))):
            size = int(random.integers(1, LONGEST_GAP + 1))
            start = int(random.integers(1, max(len(rows[0]) - size, 2)))
            labels = rows[1]
            if random.random() < 0.5:
                new = random.choice(len(AMINO_ACIDS), size, p=self.background)
                inside = labels[start - 1 : start + 1].all()
                added = (new, np.full(size, int(inside)), np.zeros(size, np.int64))
                rows = [np.insert(row, start, part) for row, part in zip(rows, added, strict=True)]
            elif not labels[start : start + size].any() or random.random() >= KEPT_LOOP:
                rows = [np.delete(row, slice(start, start + size)) for row in rows]
        return Aligned(*rows)


def make_relatives(proteins: Sequence[AnnotatedProtein]) -> Relatives:
    """Return what makes relatives of ``proteins``; the same ones give the same.

    Raises:
        UsageError: pyhmmer is not installed, or there are fewer than two serpins for a profile.
    """
    with_rcl = [protein for protein in proteins if protein.has_rcl]
    profile = build_profile([(one.sequence, one.start, one.end) for one in with_rcl], {})
    placed = profile.place([protein.sequence for protein in with_rcl])
    serpins = [
        Aligned(_codes(protein.sequence), protein.labels(), columns)
        for protein, (columns, _) in zip(with_rcl, placed, strict=True)
    ]
    places = iter(range(len(serpins)))
    numbers = [next(places) if protein.has_rcl else -1 for protein in proteins]
    letters = [profile.hmm.alphabet.symbols.index(letter) for letter in AMINO_ACIDS]
    emissions = np.array(profile.hmm.match_emissions, np.float64)[1:, letters]
    residues = np.concatenate([_codes(protein.sequence) for protein in proteins])
    counts = np.bincount(residues, minlength=len(LETTERS))[: len(AMINO_ACIDS)] + 1.0
    background = counts / counts.sum()
    scores = BLOSUM.table[:-1, [_BLOSUM_COLUMNS.index(letter) for letter in AMINO_ACIDS]]
    replaced = background * np.exp(BLOSUM_SCALE * scores)
    return Relatives(serpins, numbers, _cumulative(emissions), _cumulative(replaced), background)


def _codes(sequence: str) -> Ints:
    codes: Ints = _CODE[np.frombuffer(sequence.upper().encode(), np.uint8)]
    return codes


def _cumulative(weights: Floats) -> Floats:
    sums: Floats = np.cumsum(weights / weights.sum(1, keepdims=True), axis=1)
    return sums


def _drawn(odds: Floats, random: np.random.Generator) -> Ints:
    """Return an amino acid for each row of cumulative probabilities ``[n, 20]``."""
    above = random.random(len(odds))[:, None] > odds
    chosen: Ints = above.sum(1).clip(max=len(AMINO_ACIDS) - 1)
    return chosen


def _joined(one: Aligned, other: Aligned, random: np.random.Generator) -> Aligned:
    """Return parts of two serpins in turn, which meet in columns that both have."""
    shared = np.intersect1d(one.columns, other.columns)
    shared = shared[shared > 0]
    if len(shared) < LEAST_SHARED_COLUMNS:
        return one
    joints = np.sort(random.choice(shared, int(random.integers(1, MOST_JOINTS + 1)), replace=False))
    parts, start, now, then = [], 0, one, other
    for column in joints:
        parts.append(now.part(start, int(np.flatnonzero(now.columns == column)[0])))
        start = int(np.flatnonzero(then.columns == column)[0])
        now, then = then, now
    parts.append(now.part(start, len(now.residues)))
    labels = np.concatenate([part.labels for part in parts])
    loop = np.flatnonzero(labels)
    if not len(loop) or loop[-1] - loop[0] >= len(loop):
        return one  # a joint where the two have their RCL in other columns
    return Aligned(
        np.concatenate([part.residues for part in parts]),
        labels,
        np.concatenate([part.columns for part in parts]),
    )


def _protein(accession: str, aligned: Aligned) -> AnnotatedProtein:
    sequence = LETTERS[aligned.residues].tobytes().decode()
    loop = np.flatnonzero(aligned.labels)
    if not len(loop):
        return AnnotatedProtein(accession, sequence)
    return AnnotatedProtein(accession, sequence, int(loop[0]) + 1, int(loop[-1]) + 1)
