"""Frame sets as a lite encoder is trained on them, made up."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from tests.unit.training.made_genomes import SENSE
from virnucpro.encoders.lite_features import AMINO_ACIDS, NO_CODON, WordPattern, codons_of
from virnucpro.training.lite.frames import FrameSet

PAIRS = WordPattern(" ".join(AMINO_ACIDS), "11")
SPACED = WordPattern("AST C DE FWY G H ILMV KR NQ P", "1101")
SMALL = (PAIRS, SPACED)  # 400 and 1,000 places instead of the 16.7 million of PATTERNS


def frame_set(texts: Sequence[Sequence[str]], virus: Sequence[bool], length: int) -> FrameSet:
    """The frames of each genome; every frame is a chunk, and a group has two genomes."""
    rows = [(number, text) for number, own in enumerate(texts) for text in own]
    codons = np.full((len(rows), length // 3 + 1), NO_CODON, np.uint8)
    for row, (_, text) in zip(codons, rows, strict=True):
        found = codons_of([text])[0]
        row[: len(found)] = found
    genomes = np.array([number for number, _ in rows], np.int32)
    chunks = np.arange(len(rows), dtype=np.int32)
    return FrameSet(length, codons, np.array(virus)[genomes], genomes, genomes // 2, chunks)


def frames(seed: int, count: int, length: int) -> list[str]:
    """Random frames of ``length`` bases without a stop."""
    source = random.Random(seed)
    return ["".join(source.choices(SENSE, k=length // 3)) for _ in range(count)]
