"""Measure which chunks are repeats by several masks, and what lies in arrays of repeats.

    python examples/lite/repeats.py DATASET SATELLITES CHROMOSOME ARRAY [--part test]

DATASET was made by `virnucpro train prepare --content records`. SATELLITES is a folder with
contigs.fa.gz, reads_1.fastq.gz and reads_2.fastq.gz, mostly of satellite DNA. ARRAY, such as
80568-191258, is the place of an integron in the record of the file CHROMOSOME. Yeast and human are
always those of the training part. All draws are the same at every start.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from pydustmasker import DustMasker, LongdustMasker, TantanMasker
from regions import PHAGE_RECORDS, PHAGES, PROKARYOTES, SEEN

from virnucpro.io.frames import LONGEST_UNIT, UNIT_DECAY
from virnucpro.io.inputs import InputFiles
from virnucpro.stages.repeats import in_arrays
from virnucpro.training.data.dataset import PARTS, Dataset, LabelledRecord

LENGTHS = (500, 300, 150, 100)
SHARES = (0.4, 0.5, 0.6)
CHUNKS = 800  # of a group
MOST_DIVERGED = (0.0, 0.05, 0.1, 0.2)
UNITS = (2, 3, 5, 10, 20, 40, 60, 100, 150, 200)
COPIES = 40  # of every unit and divergence
FOR_ARRAYS = 20_000  # bases
HUMAN_VIRUSES = {
    "RNA viruses of vertebrates",
    "epidemic viruses",
    "human viruses",
    "mammarenaviruses",
    "papillomaviruses",
}


def copied_words(chunk: str) -> float:
    """Return the share of the words of 6 bases that are copies: 0.6 was the limit before."""
    words = [chunk[i : i + 6] for i in range(len(chunk) - 5)]
    return 1 - len(set(words)) / len(words)


def tantan(chunk: str, period: int = LONGEST_UNIT, decay: float = UNIT_DECAY) -> float:
    """Return the masked share."""
    return TantanMasker(chunk, max_period=period, decay=decay).n_masked_bases / len(chunk)


def dust(chunk: str) -> float:
    """Return the masked share."""
    return DustMasker(chunk).n_masked_bases / len(chunk)


def longdust(chunk: str) -> float:
    """Return the masked share; fewer bases or copies make it more sensitive."""
    return LongdustMasker(chunk, kmer=5, min_start_cnt=2).n_masked_bases / len(chunk)


# Each with the shares from which on a chunk counts as repetitive.
MASKS: dict[str, tuple[Callable[[str], float], tuple[float, ...]]] = {
    "copied words": (copied_words, (0.6,)),
    "DUST": (dust, (0.3, 0.5)),
    "longdust": (longdust, (0.5,)),
    "tantan, 100": (partial(tantan, period=100), (0.5,)),
    "tantan": (tantan, (0.4, 0.5, 0.6)),
    "tantan, decay 0.9": (partial(tantan, decay=0.9), (0.5,)),
}


def group_of(record: LabelledRecord) -> str:
    """Return the row of the tables that a record belongs to."""
    if record.label == "virus":
        if record.group in PHAGES or record.record in PHAGE_RECORDS:
            return "phages"
        if record.group in HUMAN_VIRUSES:
            return "human viruses"
        if "herpes" in record.group or "giant" in record.group:
            return "herpes, giant viruses"
        return record.group if record.group == "baculoviruses" else "other viruses"
    if "archaea" in record.group:
        return "archaea"
    return "bacteria" if record.group in PROKARYOTES else record.group


def known_records(dataset: Dataset, part: str) -> dict[str, list[str]]:
    """Return the sequences of each group; other hosts are left out."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in PARTS:
        for record in dataset.records(name):
            group = group_of(record)
            is_host = group in {"bacteria", "archaea", "plasmids"} | SEEN
            if (record.label == "virus" or is_host) and name == (
                "train" if group in SEEN else part
            ):
                found[group].append(record.sequence)
    return found


def repeated(unit: int, diverged: float, between: int, length: int, draw: random.Random) -> str:
    """Return tandem copies of a random unit, or with ``between`` other bases after each.

    Of the bases of each copy, the share ``diverged`` is changed: 8 of 10 to another one, and one
    each is left out or doubled.
    """
    bases: list[str] = []
    first = draw.choices("ACGT", k=unit)
    skipped = draw.randrange(unit)
    while len(bases) < length + skipped:
        for base in first:
            if draw.random() < diverged:
                others = ["ACGT".replace(base, "")[draw.randrange(3)]] * 8
                base = draw.choice([*others, "", 2 * base])
            bases += base
        bases += draw.choices("ACGT", k=between)
    return "".join(bases[skipped : skipped + length])


def pieces(sequences: Sequence[str], length: int, count: int, draw: random.Random) -> list[str]:
    """Return at most ``count`` random chunks without a gap."""
    ends = np.cumsum([len(sequence) // length for sequence in sequences])
    found = []
    for place in draw.sample(range(ends[-1]), min(count, ends[-1])):
        number = int(np.searchsorted(ends, place, side="right"))
        start = length * (place - int(ends[number - 1] if number else 0))
        found.append(sequences[number][start : start + length].upper())
    return [piece for piece in found if "N" not in piece]


def print_masks(groups: dict[str, list[str]], length: int) -> None:
    """Print the share of chunks of each group that each mask finds, and what a chunk costs."""
    titles, costs, columns = (
        ["chunks"],
        ["microseconds"],
        [[f"{len(g):,}" for g in groups.values()]],
    )
    for name, (mask, limits) in MASKS.items():
        start = time.process_time()
        shares = [np.array(list(map(mask, chunks))) for chunks in groups.values()]
        cost = (time.process_time() - start) / sum(map(len, shares)) * 1e6
        for limit in limits:
            titles.append(f"{name}, {limit}")
            costs.append(f"{cost:.0f}")
            columns.append([f"{100 * (own >= limit).mean():.1f}" for own in shares])
    print(f"\n| {length} bases | {' | '.join(titles)} |\n|---|" + "---|" * len(titles))
    for group, *row in zip(groups, *columns, strict=True):
        print(f"| {group} | {' | '.join(row)} |", flush=True)
    print(f"| {' | '.join(['', *costs])} |", flush=True)


def print_arrays(groups: dict[str, list[str]]) -> None:
    """Print the share of places, one each 500 bases, that are in arrays of repeats."""
    print("\n| in arrays of repeats | pieces | of their bases |\n|---|---|---|")
    for name, sequences in groups.items():
        found = [in_arrays(each, np.arange(250, len(each), 500)) for each in sequences]
        if found:
            print(f"| {name} | {len(found)} | {100 * np.concatenate(found).mean():.1f} % |")


def main() -> None:
    """Print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    for name in ("dataset", "satellites", "chromosome"):
        parser.add_argument(name, type=Path)
    parser.add_argument("array")
    parser.add_argument("--part", choices=PARTS, default="test")
    args = parser.parse_args()
    contigs, *reads = (
        [record.sequence for record in InputFiles(args.satellites / name).records()]
        for name in ("contigs.fa.gz", "reads_1.fastq.gz", "reads_2.fastq.gz")
    )
    (chromosome,) = (record.sequence for record in InputFiles(args.chromosome).records())
    begin, end = map(int, args.array.split("-"))
    known = {"satellites": contigs, "integron": [chromosome[begin - 1 : end]]}
    known |= dict(sorted(known_records(Dataset(args.dataset), args.part).items()))
    draw = random.Random(0)
    for length in LENGTHS:
        groups = {name: pieces(own, length, CHUNKS, draw) for name, own in known.items()}
        # Reads are shorter than some chunks: as long as they are.
        groups["their reads"] = [read[:length] for mates in reads for read in mates[:CHUNKS]]
        for diverged in MOST_DIVERGED:
            for low, high in ((2, 60), (100, 200)):
                groups[f"units of {low} to {high}, {100 * diverged:.0f} % diverged"] = [
                    repeated(unit, diverged, 0, length, draw)
                    for unit in UNITS
                    for _ in range(COPIES)
                    if low <= unit <= high
                ]
        print_masks(groups, length)
    groups = {name: pieces(own, FOR_ARRAYS, 100, draw) for name, own in known.items()}
    for unit, between in ((24, 60), (36, 35), (110, 500), (120, 900)):
        for diverged in (0.1, 0.2, 0.3):
            groups[f"units of {unit}, {100 * diverged:.0f} % diverged, {between} between"] = [
                repeated(unit, diverged, between, FOR_ARRAYS, draw) for _ in range(10)
            ]
    print_arrays(groups)


if __name__ == "__main__":
    main()
