"""Measure how well viral regions are found: in bacteria with a phage inside, and in hosts alone.

    python examples/lite/regions.py DATASET OUT [--part test] [-m lite -e 500]

DATASET was made by `virnucpro train prepare --content records`. All other options are those of
`virnucpro predict`; without any, they are `-m lite -e 500`.

Pieces of 5, 10, 20 and 40 kb of phages of one part are put into bacteria and archaea of the same
part, of 40 kb to 1 Mbp and of a similar share of G and C. Chunks are scored one by one, so a chunk
of the host scores as it does without the phage: OUT/hosts.fa holds the hosts, OUT/inserts.fa the
phages with the bases of the host that share a chunk with them, and the scores of the two are put
together as predict would see them in the whole record. OUT/seen.fa holds yeast and human, which the
shipped model has seen in training. Arrays of repeats are in no region, as in predict. A second
start with the same DATASET, OUT and options scores nothing again.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from virnucpro.columns import MISSING
from virnucpro.io.frames import chunk_spans
from virnucpro.stages.calls import SCORED, STATUSES, Chunks, log_odds
from virnucpro.stages.genes import Hit
from virnucpro.stages.output import gene_finder
from virnucpro.stages.regions import Region, find_regions, region_fdr
from virnucpro.stages.repeats import in_arrays
from virnucpro.tables import CHUNKS
from virnucpro.training.data.dataset import Dataset, LabelledRecord, Part

LENGTHS = (5_000, 10_000, 20_000, 40_000)  # of the pieces of phages, rounded up to whole chunks
SHORTEST_HOST = 40_000
HOST_LENGTHS = (40_000, 100_000, 200_000, 500_000, 1_000_000)
CUTS = (0.3, 0.8, 0.95)  # scores for which the figures are given; 0.3 are all regions
MOST_PIECES = 6  # of one length from one taxon, so that no group of phages decides
CUTS_PER_PHAGE = 2
LIKE_HOSTS = 12  # a piece goes into one of so many hosts whose share of G and C is nearest
SEEN_BASES = 3_000_000  # of each group of the training part
PROKARYOTES = {
    "Escherichia coli",
    "archaea of six genera",
    "bacteria of many genera",
    "clinical bacteria",
    "diverse archaea",
    "diverse prokaryotes",
    "mixed bacteria",
    "outside CPR and DPANN",
    "outside archaea",
    "outside gut MAGs",
    "outside gut isolates",
    "outside marine MAGs",
    "outside oral MAGs",
    "outside soil MAGs",
    "outside sponge MAGs",
    "outside wastewater MAGs",
}
OTHER_HOSTS = {"vertebrates", "plasmids"}  # from 20 kb
SEEN = {"yeast", "human"}  # of the training part
NOT_SEEN = "all but those seen"
PHAGES = {
    "RefSeq phages",
    "archaeal viruses",
    "coliphages",
    "outside phages",
    "phage genomes",
    "phages",
    "phages of many hosts",
    "small phages",
    "tailed phages",
}
PHAGE_RECORDS = {"NC_005880.2", "MG592470.1", "MH159197.1"}  # among the viruses of many kinds
K12 = "NC_000913.3"
# Prophages of E. coli K-12 MG1655 with approximate ends in thousands of bases, from its annotation.
K12_PROPHAGES = {
    "CP4-6": (262, 297),
    "DLP12": (564, 586),
    "e14": (1196, 1211),
    "Rac": (1412, 1435),
    "Qin": (1632, 1652),
    "CP4-44": (2066, 2078),
    "PR-X": (2166, 2173),
    "CPS-53": (2466, 2477),
    "CPZ-55": (2559, 2565),
    "CP4-57": (2754, 2776),
}


class Lysogen(NamedTuple):
    """A piece of a phage in a stretch of a host. All coordinates are bases from 0."""

    name: str
    host: str
    host_start: int
    host_length: int
    position: int  # in the stretch
    length: int  # of the piece
    group: str


def gc(sequence: str) -> float:
    """Return the share of G and C among the known bases."""
    count = Counter(sequence)
    return (count["G"] + count["C"]) / max(1, sum(count[base] for base in "ACGT"))


def write_fasta(path: Path, records: Iterable[tuple[str, str]]) -> None:
    """Write (name, bases) to ``path``."""
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(f">{name}\n{bases}\n" for name, bases in records)


def host_records(dataset: Dataset, part: Part) -> list[LabelledRecord]:
    """Return the records that are hosts: long enough, and with a group that is counted."""
    shortest = dict.fromkeys(PROKARYOTES, SHORTEST_HOST) | dict.fromkeys(OTHER_HOSTS, 20_000)
    hosts = [
        record
        for record in dataset.records(part)
        if len(record.sequence) >= shortest.get(record.group, math.inf)
    ]
    return sorted(hosts, key=lambda record: record.group in OTHER_HOSTS)


def seen_records(dataset: Dataset) -> list[LabelledRecord]:
    """Return the first records of yeast and human of the training part, at most 1 Mbp of each."""
    bases: Counter[str] = Counter()
    kept = []
    for record in dataset.records("train"):
        if record.group in SEEN and bases[record.group] < SEEN_BASES:
            kept.append(record._replace(sequence=record.sequence[:1_000_000]))
            bases[record.group] += len(kept[-1].sequence)
    return kept


def phage_pieces(
    dataset: Dataset, part: Part, chunk: int, draw: random.Random
) -> list[tuple[LabelledRecord, str]]:
    """Return (phage, bases of a piece), of every length."""
    phages = [
        record
        for record in dataset.records(part)
        if record.label == "virus" and (record.group in PHAGES or record.record in PHAGE_RECORDS)
    ]
    pieces = []
    for wanted in LENGTHS:
        length = -(-wanted // chunk) * chunk
        taken: Counter[str] = Counter()
        for phage in phages:
            most = min(CUTS_PER_PHAGE, len(phage.sequence) // length)
            for _ in range(min(most, MOST_PIECES - taken[phage.taxon])):
                taken[phage.taxon] += 1
                start = draw.randrange(len(phage.sequence) - length + 1)
                bases = phage.sequence[start : start + length]
                if bases.count("N") <= length / 10:
                    pieces.append((phage, bases))
    return pieces


def lysogens(
    hosts: Sequence[LabelledRecord],
    pieces: Sequence[tuple[LabelledRecord, str]],
    chunk: int,
    draw: random.Random,
) -> tuple[list[Lysogen], list[tuple[str, str]]]:
    """Return the lysogens, and (name, bases) of the chunks that the phage changes in the host."""
    shares = [(host, gc(host.sequence)) for host in hosts if host.group in PROKARYOTES]
    made, windows = [], []
    for number, (phage, bases) in enumerate(pieces):
        share = gc(bases)
        nearest = sorted(shares, key=lambda pair: abs(pair[1] - share))[:LIKE_HOSTS]
        host = draw.choice(nearest)[0]
        whole = len(host.sequence) // chunk * chunk
        wanted = draw.choice([length for length in HOST_LENGTHS if length <= len(host.sequence)])
        length = wanted // chunk * chunk
        start = draw.randrange((whole - length) // chunk + 1) * chunk
        position = draw.randrange(5_000, length - 5_000)
        cut = start + position
        before, after = cut // chunk * chunk, -(-cut // chunk) * chunk
        name = f"insert_{number + 1}"
        made.append(Lysogen(name, host.record, start, length, position, len(bases), phage.group))
        windows.append((name, host.sequence[before:cut] + bases + host.sequence[cut:after]))
    return made, windows


def predict(path: Path, options: Sequence[str]) -> dict[str, Chunks]:
    """Return the chunks of every record of a FASTA file, scored by `virnucpro predict`."""
    folder = path.parent / "predicted"
    command = [sys.executable, "-m", "virnucpro", "predict", str(path), "-o", str(folder)]
    ended = subprocess.run([*command, *options], check=False, stdout=subprocess.DEVNULL)
    if ended.returncode:
        sys.exit(ended.returncode)  # predict has said why
    found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    names = ("record", "start", "end", "status", "max_score_0", "max_score_1")
    for record, start, end, status, *scores in CHUNKS.read(
        folder / f"{path.stem}_chunks.tsv", *names
    ):
        others, virus = (float(cell.replace(MISSING, "nan")) for cell in scores)
        place = STATUSES.index(status)
        found[record].append((0, int(start) - 1, int(end), place, others, virus))
    return {
        record: Chunks(*map(np.array, zip(*rows, strict=True))) for record, rows in found.items()
    }


@cache
def hits_of(sequence: str) -> list[Hit]:
    """Return the hallmarks and host markers of a record."""
    (predicted,) = gene_finder().find([sequence])
    return predicted.hits


def regions_of(chunks: Chunks, sequence: str) -> list[Region]:
    """Return the regions of a record that is not called virus."""
    return find_regions(len(sequence), chunks, None, sequence, hits_of(sequence))


def joined(
    lysogen: Lysogen, hosts: dict[str, Chunks], inserts: dict[str, Chunks], chunk: int
) -> Chunks:
    """Return the chunks of the whole record, in which the phage lies at its position."""
    host, first = hosts[lysogen.host], lysogen.host_start // chunk
    cut, last = lysogen.host_start + lysogen.position, first + lysogen.host_length // chunk
    left = host.chosen(slice(first, cut // chunk))
    right = host.chosen(slice(-(-cut // chunk), last))
    parts = zip(left, inserts[lysogen.name], right, strict=True)
    spans = np.array(chunk_spans(lysogen.host_length + lysogen.length, chunk))
    return Chunks._make(map(np.concatenate, parts))._replace(start=spans[:, 0], stop=spans[:, 1])


def thinned(chunks: Chunks, share: float, draw: random.Random) -> Chunks:
    """Return the chunks with a random ``share`` of them without a score."""
    lost = [draw.random() < share for _ in chunks.status]
    status = np.where(lost, STATUSES.index("no_open_frame"), chunks.status)
    return chunks._replace(status=status)


def joined_sequence(lysogen: Lysogen, hosts: dict[str, str], window: str, chunk: int) -> str:
    """Return the bases of the whole record; ``window`` are those of the chunks with the phage."""
    host, cut = hosts[lysogen.host], lysogen.host_start + lysogen.position
    before, after = cut // chunk * chunk, -(-cut // chunk) * chunk
    stop = lysogen.host_start + lysogen.host_length
    return host[lysogen.host_start : before] + window + host[after:stop]


def overlap(region: Region, start: int, stop: int) -> int:
    """Return how many bases of a region are in ``start`` to ``stop``."""
    return max(0, min(stop, region.stop) - max(start, region.start))


def print_recall(records: Sequence[tuple[Lysogen, Chunks, str]], title: str) -> None:
    """Print how many phages are found: a region overlaps at least half of the phage."""
    found: dict[int, list[float]] = defaultdict(list)
    errors: dict[int, list[int]] = defaultdict(list)
    right: Counter[int] = Counter()  # bases of regions that are of the phage
    called: Counter[int] = Counter()  # bases of regions
    for lysogen, chunks, sequence in records:
        length, start = lysogen.length, lysogen.position
        best: Region | None = None
        for region in regions_of(chunks, sequence):
            shared = overlap(region, start, start + length)
            right[length] += shared
            called[length] += region.stop - region.start
            if 2 * shared >= length:
                best = region
        found[length].append(best.score if best else -1.0)
        if best:
            errors[length] += [abs(best.start - start), abs(best.stop - start - length)]
    above = " | ".join(f"found, score > {cut}" for cut in CUTS)
    more = "error of an end, median | mean | bases found | bases right"
    print(f"\n{title}\n\n| phage | records | {above} | {more} |")
    print("|---|" + "---|" * (len(CUTS) + 5))
    for length, scores in found.items():
        shares = " | ".join(f"{sum(s > cut for s in scores) / len(scores):.2f}" for cut in CUTS)
        middle, mean = (f(errors[length] or [0]) for f in (statistics.median, statistics.fmean))
        row = f"{length:,} | {len(scores)} | {shares} | {middle:,.0f} | {mean:,.0f}"
        bases = right[length] / length / len(scores), right[length] / max(1, called[length])
        print(f"| {row} | {bases[0]:.2f} | {bases[1]:.2f} |")
    print_bases(right.total(), sum(lysogen.length for lysogen, *_ in records), called.total())


def print_bases(right: int, known: int, called: int) -> None:
    """Print which share of ``known`` bases is found, and which of those ``called`` is right."""
    print(f"\nOf {known:,} bases of phages {right / known:.2f} are found,", end=" ")
    print(f"and of {called:,} bases in regions {right / max(1, called):.2f} are right.")


def print_false(
    groups: dict[str, str], chunks: dict[str, Chunks], sequences: dict[str, str]
) -> None:
    """Print how many regions there are per million bases of hosts that are labelled non-viral."""
    bases: Counter[str] = Counter()
    repeats: Counter[str] = Counter()
    scores: dict[str, list[float]] = defaultdict(list)
    for record, group in groups.items():
        sequence = sequences[record]
        kept = regions_of(chunks[record], sequence)
        for name in {group, group if group in SEEN else NOT_SEEN}:
            bases[name] += len(sequence)
            scores[name] += [region.score for region in kept]
            found = find_regions(len(sequence), chunks[record])  # bases of repeats left out:
            repeats[name] += sum(r.stop - r.start for r in found) - sum(
                r.stop - r.start for r in kept
            )
    above = " | ".join(f"regions per Mbp, score > {cut}" for cut in CUTS)
    print(f"\n| host | Mbp | {above} | kb left out |\n|---|---|" + "---|" * (len(CUTS) + 1))
    for group, count in sorted(bases.items()):
        rates = (sum(s > cut for s in scores[group]) / count * 1e6 for cut in CUTS)
        row = " | ".join(f"{rate:.2f}" for rate in rates)
        print(f"| {group} | {count / 1e6:.1f} | {row} | {repeats[group] / 1000:.0f} |")


def print_k12(chunks: Chunks, sequence: str) -> None:
    """Print the regions of E. coli K-12 beside its known prophages."""
    print("\n| region of K-12 | score | fdr | known prophage, about |\n|---|---|---|---|")
    places = {name: (1000 * start, 1000 * stop) for name, (start, stop) in K12_PROPHAGES.items()}
    regions = regions_of(chunks, sequence)
    rates = region_fdr(np.array([region.score for region in regions]), len(sequence))
    for region, rate in zip(regions, rates, strict=True):
        known = [
            f"{name} {start:,}-{stop:,}"
            for name, (start, stop) in places.items()
            if overlap(region, start, stop)
        ]
        place = f"{region.start + 1:,}-{region.stop:,}"
        print(f"| {place} | {region.score:.2f} | {rate:.2f} | {', '.join(known) or '-'} |")
    print_bases(
        sum(overlap(region, *place) for region in regions for place in places.values()),
        sum(stop - start for start, stop in places.values()),
        sum(region.stop - region.start for region in regions),
    )


def print_levels(hosts: Iterable[Chunks], inserts: Iterable[Chunks], phages: Iterable[str]) -> None:
    """Print what is assumed about scores and repeats, as it is in these records."""
    scored = (chunks.chosen(chunks.status == SCORED) for chunks in hosts)
    values = [log_odds(chunks).tolist() for chunks in scored if len(chunks.record) > 1]
    means = [statistics.fmean(host) for host in values]
    found = (chunks.chosen(chunks.status == SCORED) for chunks in inserts)
    viral = [value for chunks in found for value in log_odds(chunks).tolist()]
    print("\n| assumed | here |\n|---|---|")
    print(f"| host_level | {statistics.fmean(means):.2f} |")
    print(f"| host_level_spread | {statistics.stdev(means):.2f} |")
    print(f"| chunk_spread | {statistics.median(map(statistics.stdev, values)):.2f} |")
    print(f"| virus_level | {statistics.fmean(viral):.2f} |")
    repeats = [in_arrays(phage, np.arange(0, len(phage), 500)).mean() for phage in phages]
    print(f"| phages in arrays of repeats | {statistics.fmean(repeats):.3f} |")


def main() -> None:
    """Write the records, have them scored, and print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", choices=("validation", "test"), default="test")
    args, options = parser.parse_known_args()
    options = options or ["-m", "lite", "-e", "500"]
    lengths = argparse.ArgumentParser(add_help=False)
    lengths.add_argument("-e", "--expected-length", type=int, default=500)
    chunk = lengths.parse_known_args(options)[0].expected_length
    args.out.mkdir(parents=True, exist_ok=True)
    dataset, draw = Dataset(args.dataset), random.Random(0)
    hosts, seen = host_records(dataset, args.part), seen_records(dataset)
    made, windows = lysogens(hosts, phage_pieces(dataset, args.part, chunk, draw), chunk, draw)
    groups = {record.record: record.group for record in [*hosts, *seen]}
    chunks: dict[str, Chunks] = {}
    for name, records in (("hosts", hosts), ("seen", seen)):
        whole = ((r.record, r.sequence[: len(r.sequence) // chunk * chunk]) for r in records)
        write_fasta(args.out / f"{name}.fa", whole)
        chunks |= predict(args.out / f"{name}.fa", options)
    write_fasta(args.out / "inserts.fa", windows)
    inserts = predict(args.out / "inserts.fa", options)
    sequences = {r.record: r.sequence[: len(r.sequence) // chunk * chunk] for r in [*hosts, *seen]}
    parts = []
    for lysogen, (_, window) in zip(made, windows, strict=True):
        bases = joined_sequence(lysogen, sequences, window, chunk)
        parts.append((lysogen, joined(lysogen, chunks, inserts, chunk), bases))
    print_recall(parts, "All chunks as predict scored them:")
    half = [(lysogen, thinned(whole, 0.5, draw), bases) for lysogen, whole, bases in parts]
    print_recall(half, "Without the scores of half of the chunks:")
    print_false(groups, chunks, sequences)
    if K12 in chunks:
        print_k12(chunks[K12], sequences[K12])
    prokaryotes = [found for record, found in chunks.items() if groups[record] in PROKARYOTES]
    print_levels(prokaryotes, inserts.values(), (bases for _, bases in windows))


if __name__ == "__main__":
    main()
