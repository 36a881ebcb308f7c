"""The frames of a data set as a lite encoder is trained on them: matrices, folds, drawn batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.lite_features import (
    AMINO_ACIDS,
    NO_CODON,
    NO_RESIDUE,
    Letters,
    codons_of,
)
from virnucpro.errors import InputError
from virnucpro.io.fasta import read_fasta
from virnucpro.io.frames import GENETIC_CODE
from virnucpro.training.data.dataset import Dataset, Part
from virnucpro.training.data.relatives import Sketch, sketch

GROUP_POWER = 0.3  # with 0.5, human frames are one in fifty of the others
FOLDS = 8  # a frame is never scored by a census that counted its own genome or a relative's
RELATED = 0.05  # shared 31-mers of the smaller genome, as in train prepare

_BASES = "ACGT"
RESIDUE_OF = np.array(
    # A stop is not found: -1, which is NO_RESIDUE modulo 21.
    [AMINO_ACIDS.find(GENETIC_CODE[a + b + c]) % 21 for a, b, c in product(_BASES, repeat=3)]
    + [NO_RESIDUE],
    np.uint8,
)
"""By codon (0 to 63, 64 for none): its residue."""
SENSE = np.flatnonzero(RESIDUE_OF[:64] < NO_RESIDUE).astype(np.uint8)


@dataclass(frozen=True)
class FrameSet:
    """The frames of one part that were cut at one chunk length.

    Attributes:
        length: of the chunks, in bases.
        codons: uint8 ``[n, codons]``; a shorter frame ends in ``NO_CODON``.
        virus: bool ``[n]``.
        genomes, groups, chunks: int32 ``[n]``, numbers of the names.
    """

    length: int
    codons: Letters
    virus: npt.NDArray[np.bool_]
    genomes: npt.NDArray[np.int32]
    groups: npt.NDArray[np.int32]
    chunks: npt.NDArray[np.int32]

    def whole(self) -> npt.NDArray[np.bool_]:
        """Which frames fill their row but for what the frame's offset may cost: bool ``[n]``."""
        return np.asarray((self.codons[:, : self.length // 3 - 1] < NO_CODON).all(axis=1))


def load_frames(dataset: Dataset, part: Part) -> tuple[list[FrameSet], list[str]]:
    """The frames of ``part`` by chunk length, longest first, and the names of the genomes.

    Frames with an ambiguous base are left out.

    Raises:
        InputError: shards and table do not belong together.
    """
    texts = (
        pair
        for number in range(1, dataset.shards(part) + 1)
        for pair in read_fasta(dataset.layout(part).split("nucleotide", number))
    )
    numbers: dict[str, dict[str, int]] = {"genome": {}, "group": {}, "chunk": {}}
    columns: dict[int, list[tuple[bool, int, int, int]]] = defaultdict(list)
    rows: dict[int, list[Letters]] = defaultdict(list)
    for frame in dataset.frames(part):
        name, text = next(texts, ("", ""))
        if name != frame.frame:
            raise InputError(f"{dataset.root}: the shards of {part} are not those of its table")
        codons = codons_of([text])[0][: frame.length // 3 + 1]
        if len(codons) == 0 or (codons == NO_CODON).any():
            continue
        kinds = (("genome", frame.genome), ("group", frame.group), ("chunk", frame.chunk))
        genome, group, chunk = (numbers[k].setdefault(v, len(numbers[k])) for k, v in kinds)
        columns[frame.length].append((frame.label == "virus", genome, group, chunk))
        row = np.full(frame.length // 3 + 1, NO_CODON, np.uint8)
        row[: len(codons)] = codons
        rows[frame.length].append(row)
    sets = []
    for length in sorted(rows, reverse=True):
        table = np.array(columns[length], np.int32)
        said = (table[:, 0].astype(bool), table[:, 1], table[:, 2], table[:, 3])
        sets.append(FrameSet(length, np.stack(rows[length]), *said))
    return sets, list(numbers["genome"])


def folds_of(sets: Sequence[FrameSet], genomes: int) -> npt.NDArray[np.int32]:
    """A number for each genome, the same for relatives: int32 ``[genomes]``.

    Genomes that share more than ``RELATED`` of their 31-mers, directly or through others, are one
    cluster. The fold of a genome is its cluster's number modulo ``FOLDS``.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    sketches = [_sketch(sets, genome) for genome in range(genomes)]
    words, columns = np.unique(np.concatenate(sketches), return_inverse=True)
    owners = np.repeat(np.arange(genomes), [len(s) for s in sketches])
    ones = np.ones(len(columns), np.int32)
    held = coo_array((ones, (owners, columns)), shape=(genomes, len(words))).tocsr()
    shared = (held @ held.T).tocoo()
    sizes = np.maximum([len(s) for s in sketches], 1)
    smaller = np.minimum(sizes[shared.row], sizes[shared.col])
    near = shared.data > RELATED * smaller
    ends = (shared.row[near], shared.col[near])
    links = coo_array((np.ones(len(ends[0]), np.int32), ends), (genomes,) * 2)
    return np.asarray(connected_components(links, directed=False)[1], np.int32)


def _sketch(sets: Sequence[FrameSet], genome: int) -> Sketch:
    """The 31-mers of a genome's frames; those between frames are left out."""
    texts = []
    for frames in sets:
        codons = frames.codons[frames.genomes == genome]
        # A row ends in at least one NO_CODON, or is cut there: no 31-mer runs into the next.
        padded = np.pad(codons, ((0, 0), (0, 1)), constant_values=NO_CODON)
        letters = np.stack([padded >> 4, (padded >> 2) & 3, padded & 3], axis=2)
        text = np.frombuffer(b"ACGT", np.uint8)[letters & 3]
        text[padded == NO_CODON] = ord("N")
        texts.append(text.tobytes().decode("ascii"))
    return sketch("N".join(texts))


@dataclass(frozen=True)
class Drawn:
    """A training batch of one length.

    ``codons`` uint8 ``[n, L]``; ``virus`` bool ``[n]``; ``clusters`` int32 ``[n]``.
    """

    codons: Letters
    virus: npt.NDArray[np.bool_]
    clusters: npt.NDArray[np.int32]


class Sampler:
    """Draws balanced batches of a set: half virus, groups by a power of their size.

    The power lies between equal groups, where a small one is learned by heart, and equal frames,
    where three bacterial collections are nearly everything.
    """

    def __init__(self, frames: FrameSet, clusters: npt.NDArray[np.int32]) -> None:
        keep = np.flatnonzero(frames.whole())
        self._frames = frames
        self._clusters = clusters[frames.genomes]
        self._rows: list[npt.NDArray[np.intp]] = []
        self._ladders: list[npt.NDArray[np.float64]] = []
        for virus in (False, True):
            rows = keep[frames.virus[keep] == virus]
            if not len(rows):
                label = "virus" if virus else "others"
                raise InputError(f"no {label} frames of {frames.length} bp to train on")
            _, group, sizes = np.unique(
                frames.groups[rows], return_inverse=True, return_counts=True
            )
            self._rows.append(rows)
            self._ladders.append(np.cumsum(sizes[group] ** (GROUP_POWER - 1)))

    def draw(self, count: int, mutated: float, random: np.random.Generator) -> Drawn:
        """``count`` frames, others first, each a part of a frame, all of one length.

        Half of the batches are cut to between 50 and 100 %. In half of the frames codons are
        replaced by any others, each with a probability of up to twice ``mutated``: relatives that
        are further off than any in the data set.
        """
        picked = []
        for rows, ladder in zip(self._rows, self._ladders, strict=True):
            places = np.searchsorted(ladder, random.random(count // 2) * ladder[-1])
            picked.append(rows[np.minimum(places, len(rows) - 1)])
        chosen = np.concatenate(picked)
        full = self._frames.length // 3 - 1
        size = int(random.integers(full // 2, full + 1)) if random.random() < 0.5 else full
        start = int(random.integers(0, full - size + 1))
        codons = self._frames.codons[chosen, start : start + size]
        rate = random.random((len(codons), 1)) * 2 * mutated
        rate *= random.random((len(codons), 1)) < 0.5
        hit = (random.random(codons.shape) < rate) & (codons < NO_CODON)
        codons[hit] = SENSE[random.integers(0, len(SENSE), int(hit.sum()))]
        return Drawn(codons, self._frames.virus[chosen], self._clusters[chosen])
