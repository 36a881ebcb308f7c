"""Find the stretches of genomes that lite must not learn as it learns the rest, and write a table.

    python examples/lite/stretches.py DATASET REGIONS... > mask.tsv

DATASET was made by `virnucpro train prepare --content records`. REGIONS are tables of viral regions
that `virnucpro predict` found in its training records. The table that is printed is for the option
`--mask` of train.py: a row without a group is not trained on; the others are drawn as
a group of their own, and as virus where the column label says so.

- Clusters of genes of ribosomal proteins, elongation factors and RNA polymerase, which look viral
  to lite: bacteria and archaea share words of amino acids with those of E. coli K-12, and, in a
  second round, words that three or more genera have in the clusters of the first one.
- rRNA, by two motifs that all bacteria and archaea have.
- Proviruses: regions of bacteria and archaea with a score of 0.8 or more that are mostly
  outside these clusters. A tenth at either end is not trained on, the rest is drawn as virus.
- Regions of eukaryotes are false calls, mostly of transposons: a group.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from virnucpro.encoders.lite import base_numbers
from virnucpro.metrics import Bools, Floats, Ints
from virnucpro.training.data.dataset import Dataset, LabelledRecord

WORD = 7  # amino acids
TABLE = 1 << 28  # places of a table of words; few words share one
AMINO_ACIDS = "KNKNTTTTRSRSIIMIQHQHPPPPRRRRLLLLEDEDAAAAGGGGVVVV*Y*YSSSS*CWCLFLF"  # AAA, AAC, ...
STOP = 20
SHORTEST_FRAME = 60  # amino acids without a stop codon, of the words that are collected
K12 = "NC_000913.3"
CLUSTERS = ((3_437_500, 3_474_500), (4_176_500, 4_187_500))  # of K-12, about
DENSITY = 1.2  # words of clusters per 100 bases of a cluster, in 1,500 bases
BLOCK = 500  # bases
GENERA = 3
SURE = 0.8  # score of a provirus
PROVIRUSES = "proviruses"
EUKARYOTES = re.compile("human|yeast|plant|vertebrate|nuclear|fungal|transcript|exon|organelle")
RRNA = (  # a motif, and how far the gene reaches on either side of it
    (re.compile("GTG[CT]CAGC[AC]GCCGCGGTAA"), 500, 1020),  # of 16S
    (re.compile("AGTACGAGAGGACC"), 2640, 240),  # of 23S
)
COMPLEMENT = str.maketrans("ACGT", "TGCA")

_letters = sorted(set(AMINO_ACIDS) - {"*"})
_CODES = np.array([_letters.index(a) if a != "*" else STOP for a in AMINO_ACIDS], np.uint8)


def words(sequence: str) -> Iterator[tuple[Ints, Ints, Bools]]:
    """Yield, of either strand, the places of its words, their hashes, and the stops.

    A place is the first base of a word on the forward strand, from 0.
    """
    bases = base_numbers([sequence])[0]
    for strand in (bases, np.where(bases < 4, 3 - bases, 4)[::-1].astype(np.uint8)):
        if len(strand) < 3 * WORD:
            return
        codons = strand[:-2].astype(np.int32) * 16 + strand[1:-1] * 4 + strand[2:]
        known = (strand[:-2] < 4) & (strand[1:-1] < 4) & (strand[2:] < 4)
        acids = np.where(known, _CODES[np.minimum(codons, 63)], STOP)
        count = len(acids) - 3 * (WORD - 1)
        hashes: npt.NDArray[np.uint64] = np.zeros(count, np.uint64)
        open_frame = np.ones(count, np.bool_)
        for i in range(WORD):
            acid = acids[3 * i : 3 * i + count]
            hashes = np.uint64(20) * hashes + acid
            open_frame &= acid != STOP
        hashes = (hashes * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(36)
        places = np.flatnonzero(open_frame)
        forward = places if strand is bases else len(bases) - 3 * WORD - places
        yield forward, hashes[places].astype(np.int64), _in_long_frames(acids)[places]


def _in_long_frames(acids: npt.NDArray[np.uint8]) -> Bools:
    """Return, for every place, whether the frame that begins a codon there is long and open."""
    out = np.zeros(len(acids), np.bool_)
    for frame in range(3):
        part = acids[frame::3]
        stops = np.concatenate(([-1], np.flatnonzero(part == STOP), [len(part)]))
        lengths = np.diff(stops)
        out[frame::3] = np.repeat(lengths > SHORTEST_FRAME, lengths)[: len(part)]
    return out


def hits(sequence: str, table: Bools) -> Floats:
    """Return how many words of ``table`` begin in each block of a sequence."""
    out = np.zeros(len(sequence) // BLOCK + 1)
    for places, hashes, _ in words(sequence):
        found = places[table[hashes]]
        out += np.bincount(found // BLOCK, minlength=len(out))
    return out


def learn(table: Bools, sequence: str) -> None:
    """Add the words in long open frames of a sequence."""
    for _, hashes, inside in words(sequence):
        table[hashes[inside]] = True


def dense(counts: Floats, length: int) -> list[tuple[int, int]]:
    """Return the stretches of at least three blocks where there are many words."""
    sums = np.convolve(counts, np.ones(3), "same")
    inside = np.concatenate(([False], sums >= DENSITY * 3 * BLOCK / 100, [False]))
    edges = np.flatnonzero(inside[1:] != inside[:-1]).reshape(-1, 2)
    merged: list[list[int]] = []
    for first, last in edges.tolist():
        if merged and first - merged[-1][1] <= 4:
            merged[-1][1] = last
        else:
            merged.append([first, last])
    return [(a * BLOCK, min(b * BLOCK, length)) for a, b in merged if b - a >= 4]


def rrna(sequence: str) -> list[tuple[int, int]]:
    """Return the rRNA genes of both strands, from their motifs."""
    found, size = [], len(sequence)
    reverse = sequence.translate(COMPLEMENT)[::-1]
    for motif, before, after in RRNA:
        found += [(m.start() - before, m.start() + after) for m in motif.finditer(sequence)]
        found += [
            (size - m.start() - after, size - m.start() + before) for m in motif.finditer(reverse)
        ]
    return [(max(0, a), min(size, b)) for a, b in found]


def clusters(records: list[LabelledRecord], seed: str) -> dict[str, list[tuple[int, int]]]:
    """Return the clusters of housekeeping genes of every record, in two rounds."""
    table = np.zeros(TABLE, np.bool_)
    learn(table, seed)
    first = {r.record: dense(hits(r.sequence, table), len(r.sequence)) for r in records}
    genera = np.zeros(TABLE, np.uint8)
    last: dict[str, Ints] = defaultdict(lambda: np.empty(0, np.int64))
    for record in records:
        for start, stop in first[record.record]:
            for _, hashes, inside in words(record.sequence[start:stop]):
                last[record.taxon] = np.union1d(last[record.taxon], hashes[inside])
    for hashes in last.values():
        genera[hashes] += genera[hashes] < 255
    table |= genera >= GENERA
    return {r.record: dense(hits(r.sequence, table), len(r.sequence)) for r in records}


def read_regions(paths: list[Path]) -> dict[str, list[tuple[int, int, float]]]:
    """Return start, end and score of the regions of all tables, by record, counted from 0."""
    regions: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
    for path in paths:
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream, delimiter="\t"):
                region = int(row["start"]) - 1, int(row["end"]), float(row["score"])
                regions[row["record"]].append(region)
    return regions


def overlap(region: tuple[int, int], others: list[tuple[int, int]]) -> float:
    """Return the share of a region that lies in others."""
    start, stop = region
    return sum(max(0, min(b, stop) - max(a, start)) for a, b in others) / (stop - start)


def without(region: tuple[int, int], others: list[tuple[int, int]]) -> bool:
    """Return whether a region touches none of the others."""
    return all(b <= region[0] or a >= region[1] for a, b in others)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("regions", type=Path, nargs="*")
    args = parser.parse_args()
    dataset, regions = Dataset(args.dataset), read_regions(args.regions)
    hosts, eukaryotes = [], []
    for record in dataset.records("train"):
        if record.label == "others" and EUKARYOTES.search(record.group):
            eukaryotes.append(record)
        elif record.label == "others" and len(record.sequence) >= 4 * BLOCK:
            hosts.append(record)
    k12 = next(r.sequence for r in dataset.records("test") if r.record == K12)
    housekeeping = clusters(hosts, "N".join(k12[a:b] for a, b in CLUSTERS))
    rows: list[tuple[str, int, int, str]] = []
    for record in hosts:
        name, own = record.record, housekeeping[record.record]
        genes = [gene for gene in rrna(record.sequence) if without(gene, own)]
        viral = [
            (a, b)
            for a, b, score in regions.get(name, [])
            if score >= SURE and overlap((a, b), own + genes) < 0.2
        ]
        for a, b in viral:
            first, last = a + (b - a) // 10, b - (b - a) // 10
            rows += [(name, a, first, ""), (name, first, last, PROVIRUSES), (name, last, b, "")]
        rows += [(name, *gene, "ribosomal clusters") for gene in own if without(gene, viral)]
        rows += [(name, *gene, "rRNA") for gene in genes if without(gene, viral)]
    for record in eukaryotes:
        for a, b, _ in regions.get(record.record, []):
            rows.append((record.record, a, b, "virus-like stretches of eukaryotes"))
    print("record\tstart\tend\tgroup\tlabel")
    for name, a, b, group in rows:
        print(name, a + 1, b, group, "virus" if group == PROVIRUSES else "", sep="\t")


if __name__ == "__main__":
    main()
