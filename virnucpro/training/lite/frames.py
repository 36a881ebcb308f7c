"""The frames of a data set as the lite encoders are trained on them.

Frames are rows of codon numbers. Genomes are clustered and assigned to folds, and batches are
drawn at random.
"""

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

GROUP_POWER = 0.3  # with 0.5, only one in fifty frames of the others is human
FOLDS = 8  # a frame is never scored by word counts of its own genome or a relative's
RELATED = 0.05  # shared fraction of the 31-mers of the smaller genome, as in train prepare

_BASES = "ACGT"
RESIDUE_OF = np.array(
    # A stop codon is not found: -1, which is NO_RESIDUE modulo 21.
    [AMINO_ACIDS.find(GENETIC_CODE[a + b + c]) % 21 for a, b, c in product(_BASES, repeat=3)]
    + [NO_RESIDUE],
    np.uint8,
)
"""The residue of each codon (0 to 63; 64 stands for no codon)."""
SENSE = np.flatnonzero(RESIDUE_OF[:64] < NO_RESIDUE).astype(np.uint8)


@dataclass(frozen=True)
class FrameSet:
    """The frames of one part that were cut at one chunk length.

    Attributes:
        length: the chunk length in bases.
        codons: uint8 ``[n, codons]``; a shorter frame ends in ``NO_CODON``.
        virus: bool ``[n]``.
        genomes, groups, chunks: int32 ``[n]``, the numbers of their names.
    """

    length: int
    codons: Letters
    virus: npt.NDArray[np.bool_]
    genomes: npt.NDArray[np.int32]
    groups: npt.NDArray[np.int32]
    chunks: npt.NDArray[np.int32]

    def whole(self) -> npt.NDArray[np.bool_]:
        """Return which frames fill their row: bool ``[n]``.

        One codon may be missing, because a frame may begin one or two bases later.
        """
        return np.asarray((self.codons[:, : self.length // 3 - 1] < NO_CODON).all(axis=1))


def load_frames(dataset: Dataset, part: Part) -> tuple[list[FrameSet], list[str]]:
    """Return the frames of ``part`` by chunk length, longest first, and the names of the genomes.

    Frames with an ambiguous base are left out.

    Raises:
        InputError: the shards and the frames table do not belong together.
    """
    sequences = (
        pair
        for shard in range(1, dataset.shards(part) + 1)
        for pair in read_fasta(dataset.layout(part).split("nucleotide", shard))
    )
    genomes: dict[str, int] = {}
    groups: dict[str, int] = {}
    chunks: dict[str, int] = {}
    columns: dict[int, list[tuple[bool, int, int, int]]] = defaultdict(list)
    rows: dict[int, list[Letters]] = defaultdict(list)
    for frame in dataset.frames(part):
        frame_id, sequence = next(sequences, ("", ""))
        if frame_id != frame.frame:
            raise InputError(f"{dataset.root}: the shards of {part} are not those of its table")
        codons = codons_of([sequence])[0][: frame.length // 3 + 1]
        if len(codons) == 0 or (codons == NO_CODON).any():
            continue
        columns[frame.length].append(
            (
                frame.label == "virus",
                genomes.setdefault(frame.genome, len(genomes)),
                groups.setdefault(frame.group, len(groups)),
                chunks.setdefault(frame.chunk, len(chunks)),
            )
        )
        row = np.full(frame.length // 3 + 1, NO_CODON, np.uint8)
        row[: len(codons)] = codons
        rows[frame.length].append(row)
    sets = []
    for length in sorted(rows, reverse=True):
        virus, *numbers = np.array(columns[length], np.int32).T
        sets.append(FrameSet(length, np.stack(rows[length]), virus.astype(bool), *numbers))
    return sets, list(genomes)


def cluster_genomes(sets: Sequence[FrameSet], genomes: int) -> npt.NDArray[np.int32]:
    """Return the number of the cluster of each genome: int32 ``[genomes]``.

    Genomes that share more than ``RELATED`` of their 31-mers, directly or through others, are one
    cluster. The fold of a genome is the number of its cluster modulo ``FOLDS``.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    sketches = [_sketch_frames(sets, genome) for genome in range(genomes)]
    kmers, columns = np.unique(np.concatenate(sketches), return_inverse=True)
    owners = np.repeat(np.arange(genomes), [len(kmers_of) for kmers_of in sketches])
    ones = np.ones(len(columns), np.int32)
    contains = coo_array((ones, (owners, columns)), shape=(genomes, len(kmers))).tocsr()
    shared = (contains @ contains.T).tocoo()
    sizes = np.maximum([len(kmers_of) for kmers_of in sketches], 1)
    smaller = np.minimum(sizes[shared.row], sizes[shared.col])
    related = shared.data > RELATED * smaller
    ends = (shared.row[related], shared.col[related])
    links = coo_array((np.ones(len(ends[0]), np.int32), ends), (genomes,) * 2)
    return np.asarray(connected_components(links, directed=False)[1], np.int32)


def _sketch_frames(sets: Sequence[FrameSet], genome: int) -> Sketch:
    """Return the sampled 31-mers inside the frames of a genome."""
    texts = []
    for frames in sets:
        codons = frames.codons[frames.genomes == genome]
        # Each row ends with a NO_CODON, so that no 31-mer runs into the next row.
        padded = np.pad(codons, ((0, 0), (0, 1)), constant_values=NO_CODON)
        letters = np.stack([padded >> 4, (padded >> 2) & 3, padded & 3], axis=2)
        text = np.frombuffer(b"ACGT", np.uint8)[letters & 3]
        text[padded == NO_CODON] = ord("N")
        texts.append(text.tobytes().decode("ascii"))
    return sketch("N".join(texts))


@dataclass(frozen=True)
class LiteBatch:
    """A training batch of frames of one length ``L``.

    ``codons`` is uint8 ``[n, L]``, ``virus`` bool ``[n]``, ``clusters`` int32 ``[n]``.
    """

    codons: Letters
    virus: npt.NDArray[np.bool_]
    clusters: npt.NDArray[np.int32]


class FrameSampler:
    """Draws balanced batches of a set: half of them viral, groups by a power of their size.

    The power is a compromise. With equal groups, a small group is learned by heart; with equal
    frames, three bacterial collections are nearly everything.
    """

    def __init__(self, frames: FrameSet, clusters: npt.NDArray[np.int32]) -> None:
        """Sort the frames by label. ``clusters`` is int32 ``[genomes]``.

        Raises:
            InputError: the set has no frames of a label.
        """
        whole = np.flatnonzero(frames.whole())
        self._frames = frames
        self._clusters = clusters[frames.genomes]
        self._rows: list[npt.NDArray[np.intp]] = []
        self._cumulative_weights: list[npt.NDArray[np.float64]] = []
        for virus in (False, True):
            rows = whole[frames.virus[whole] == virus]
            if not len(rows):
                label = "virus" if virus else "others"
                raise InputError(f"no {label} frames of {frames.length} bp to train on")
            _, group, sizes = np.unique(
                frames.groups[rows], return_inverse=True, return_counts=True
            )
            self._rows.append(rows)
            self._cumulative_weights.append(np.cumsum(sizes[group] ** (GROUP_POWER - 1)))

    def draw(self, count: int, mutation_rate: float, random: np.random.Generator) -> LiteBatch:
        """Return ``count`` frames, others first, each a part of a frame, all of one length.

        Half of the batches are cut to between 50 and 100 % of the length. In half of the frames,
        codons are replaced by any other sense codons, each with a probability of up to twice
        ``mutation_rate``: such frames resemble more distant relatives than the data set holds.
        """
        drawn = []
        for rows, weights in zip(self._rows, self._cumulative_weights, strict=True):
            positions = np.searchsorted(weights, random.random(count // 2) * weights[-1])
            drawn.append(rows[np.minimum(positions, len(rows) - 1)])
        chosen = np.concatenate(drawn)
        full = self._frames.length // 3 - 1
        size = int(random.integers(full // 2, full + 1)) if random.random() < 0.5 else full
        start = int(random.integers(0, full - size + 1))
        codons = self._frames.codons[chosen, start : start + size]
        rates = random.random((len(codons), 1)) * 2 * mutation_rate
        rates *= random.random((len(codons), 1)) < 0.5
        replaced = (random.random(codons.shape) < rates) & (codons < NO_CODON)
        codons[replaced] = SENSE[random.integers(0, len(SENSE), int(replaced.sum()))]
        return LiteBatch(codons, self._frames.virus[chosen], self._clusters[chosen])
