"""What the lite encoders look at in a frame, beside its letters in order: counts.

Frames of equal length are matrices of codons (0 to 63, 64 for one with an ambiguous letter) and of
residues (0 to 19, 20 for any other letter). The word counts (:class:`WordCounts`) tell
in how many unrelated genomes of either label a short word of residues occurs: that is homology, as
far as a table can show it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Letters = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

CODONS, RESIDUES = 64, 20
NO_CODON, NO_RESIDUE = 64, 20
AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
BITS = 24  # of an index into word counts; more words than that share their places
LEVELS = 4  # how many genomes: none, one, two or three, more
CODES = LEVELS * LEVELS
WINDOW = 16  # words; about a domain's conserved core
NUCLEOTIDE_FEATURES = CODONS + 256 + 1
PROTEIN_FEATURES = RESIDUES + 400 + 1  # and WORD_COUNT_FEATURES for each of the word counts
WORD_COUNT_FEATURES = 2 * CODES + 3

_BASE = np.full(256, 4, np.uint8)
_BASE[np.frombuffer(b"ACGTacgt", np.uint8)] = [0, 1, 2, 3] * 2
_RESIDUE = np.full(256, NO_RESIDUE, np.uint8)
_RESIDUE[np.frombuffer(AMINO_ACIDS.encode(), np.uint8)] = range(RESIDUES)
# Evidence of a code: the logarithm of the genomes on the virus' side over those on the other, with
# a tenth of a genome added to both. A level stands for 0, 1, 2.8 or 6 genomes.
_GENOMES = np.array([0, 1, 2.8, 6]) + 0.1
EVIDENCE = np.log(_GENOMES[:, None] / _GENOMES[None, :]).astype(np.float32).ravel()


def codons_of(sequences: Sequence[str]) -> Letters:
    """Return the codons of frames of one length: uint8 ``[n, codons]``."""
    bases: Letters = _BASE[_matrix(sequences)]
    bases = bases[:, : bases.shape[1] // 3 * 3].reshape(len(bases), -1, 3)
    codons = np.asarray((bases[:, :, 0] << 4) | (bases[:, :, 1] << 2) | bases[:, :, 2], np.uint8)
    codons[(bases == 4).any(axis=2)] = NO_CODON
    return codons


def residues_of(sequences: Sequence[str]) -> Letters:
    """Return the residues of proteins of one length: uint8 ``[n, residues]``."""
    return _RESIDUE[_matrix(sequences)]


def nucleotide_features(codons: Letters) -> Floats:
    """Return shares of codons, of words of four bases in any phase, and the length.

    uint8 ``[n, codons]`` to float32 ``[n, NUCLEOTIDE_FEATURES]``.
    """
    known = codons < CODONS
    bases = np.stack([codons >> 4, (codons >> 2) & 3, codons & 3], axis=2).reshape(len(codons), -1)
    wide = bases.astype(np.int64)
    words = wide[:, :-3] * 64 + wide[:, 1:-2] * 16 + wide[:, 2:-1] * 4 + wide[:, 3:]
    of_bases = np.repeat(known, 3, axis=1)
    whole = of_bases[:, :-3] & of_bases[:, 3:]
    return np.concatenate(
        [_shares(codons, known, 64), _shares(words, whole, 256), _length(codons)], axis=1
    )


def protein_features(residues: Letters, word_counts: Sequence[WordCounts]) -> Floats:
    """Return shares of residues and pairs, the length, and the features of the word counts.

    uint8 ``[n, residues]`` to float32
    ``[n, PROTEIN_FEATURES + WORD_COUNT_FEATURES * word_counts]``.
    """
    known = residues < RESIDUES
    pairs = residues[:, :-1].astype(np.int64) * RESIDUES + residues[:, 1:]
    parts = [
        _shares(residues, known, RESIDUES),
        _shares(pairs, known[:, :-1] & known[:, 1:], 400),
        _length(residues),
    ]
    return np.concatenate([*parts, *(c.features(residues) for c in word_counts)], axis=1)


@dataclass(frozen=True)
class WordPattern:
    """Which residues of a window make a word.

    Attributes:
        groups: the alphabet: groups of residues that count as one, separated by blanks.
        seed: ``1`` where a residue counts, ``0`` where any may stand.
    """

    groups: str
    seed: str

    def __post_init__(self) -> None:
        """Refuse what a damaged file may say (ValueError)."""
        complete = sorted("".join(self.groups.split())) == sorted(AMINO_ACIDS)
        if not complete or not re.fullmatch("[01]*1[01]*", self.seed):
            raise ValueError(f"groups {self.groups!r} or seed {self.seed!r} make no words")

    @property
    def places(self) -> int:
        """Return the number of entries: one per word, or ``2 ** BITS`` shared by hashing."""
        words: int = len(self.groups.split()) ** self.seed.count("1")
        return min(words, 1 << BITS)

    def index(self, residues: Letters) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return the place of the word at each position, and whether it has no unknown residue.

        uint8 ``[n, residues]`` to two arrays ``[n, residues - len(seed) + 1]``.
        """
        alphabet = np.zeros(RESIDUES + 1, np.int64)
        groups = self.groups.split()
        for number, group in enumerate(groups):
            alphabet[[AMINO_ACIDS.index(residue) for residue in group]] = number
        count = max(residues.shape[1] - len(self.seed) + 1, 0)
        letters, known = alphabet[residues], residues < RESIDUES
        words = np.zeros((len(residues), count), np.int64)
        whole = np.ones((len(residues), count), np.bool_)
        for offset, counts in enumerate(self.seed):
            whole &= known[:, offset : offset + count]
            if counts == "1":
                words = words * len(groups) + letters[:, offset : offset + count]
        if len(groups) ** self.seed.count("1") > 1 << BITS:
            # Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4).
            mixed = words.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            words = (mixed >> np.uint64(64 - BITS)).astype(np.int64)
        return words, whole


@dataclass(frozen=True)
class WordCounts:
    """In how many unrelated training genomes the words occur.

    ``codes`` is uint8 ``[pattern.places]``: ``LEVELS`` times the level of virus genomes, plus the
    level of others.
    """

    pattern: WordPattern
    codes: Letters

    def look_up(self, residues: Letters) -> tuple[Letters, npt.NDArray[np.bool_]]:
        """Return the code of the word at each position, and where one is: ``[n, positions]``."""
        places, whole = self.pattern.index(residues)
        return self.codes[places], whole

    def features(self, residues: Letters) -> Floats:
        """uint8 ``[n, residues]`` to float32 ``[n, WORD_COUNT_FEATURES]``."""
        return word_count_features(*self.look_up(residues))

    def packed(self) -> Letters:
        """Return the codes for a file: two per byte, deflated."""
        even = self.codes if len(self.codes) % 2 == 0 else np.append(self.codes, np.uint8(0))
        return np.frombuffer(zlib.compress((even[::2] | (even[1::2] << 4)).tobytes(), 9), np.uint8)


def unpacked_codes(packed: Letters, places: int) -> Letters:
    """Return the codes that :meth:`WordCounts.packed` put together: uint8 ``[places]``.

    Raises:
        ValueError: damaged, or of another size.
    """
    size = -(-places // 2)
    machine = zlib.decompressobj()
    try:
        # Bounded: a damaged file must not fill the memory.
        pairs = np.frombuffer(machine.decompress(packed.tobytes(), size + 1), np.uint8)
    except zlib.error as error:
        raise ValueError(f"the word counts cannot be unpacked ({error})") from error
    if len(pairs) != size or not machine.eof:  # its checksum is at the end
        raise ValueError(f"the word counts are not of {places} words, or cut short")
    codes = np.empty(2 * size, np.uint8)
    codes[::2], codes[1::2] = pairs & 15, pairs >> 4
    return codes[:places]


def word_count_features(codes: Letters, whole: npt.NDArray[np.bool_]) -> Floats:
    """Shares and logarithms of the counts of each code; the evidence: best and worst window, mean.

    ``[n, positions]`` each, to float32 ``[n, WORD_COUNT_FEATURES]``.
    """
    counts = _counts(codes, whole, CODES)
    total = np.maximum(whole.sum(axis=1, keepdims=True), 1)
    evidence = EVIDENCE[codes] * whole
    sums = np.cumsum(np.pad(evidence, ((0, 0), (1, 0))), axis=1, dtype=np.float64)
    reach = min(WINDOW, evidence.shape[1])
    windows = sums[:, reach:] - sums[:, : sums.shape[1] - reach]
    columns = [
        counts / total,
        np.log1p(counts),
        windows.max(axis=1, keepdims=True),
        windows.min(axis=1, keepdims=True),
        sums[:, -1:] / total,
    ]
    return np.concatenate(columns, axis=1).astype(np.float32)


def _matrix(sequences: Sequence[str]) -> Letters:
    letters = np.frombuffer("".join(sequences).encode("ascii", "replace"), np.uint8)
    return np.asarray(letters.reshape(len(sequences), -1))


def _counts(
    kinds: npt.NDArray[np.integer[Any]], valid: npt.NDArray[np.bool_], number: int
) -> npt.NDArray[np.float64]:
    """How often each of ``number`` kinds occurs in a row: ``[n, number]``."""
    rows = np.arange(len(kinds))[:, None] * number
    counts = np.bincount((rows + kinds)[valid], minlength=len(kinds) * number)
    return counts.reshape(len(kinds), number).astype(np.float64)


def _shares(
    kinds: npt.NDArray[np.integer[Any]], valid: npt.NDArray[np.bool_], number: int
) -> Floats:
    total = np.maximum(valid.sum(axis=1, keepdims=True), 1)
    return np.asarray(_counts(kinds, valid, number) / total, np.float32)


def _length(letters: Letters) -> Floats:
    """Letters, as a column."""
    return np.full((len(letters), 1), letters.shape[1], np.float32)
