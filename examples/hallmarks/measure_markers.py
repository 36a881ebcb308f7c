"""Print what host and virus markers in the package find in what profiles and cutoffs do not know.

    python examples/hallmarks/measure_markers.py GENOMES DATASET

The arguments are those of markers.py. Hosts, plasmids, organelles and viruses are of the part test;
more hosts are every second record of GENOMES/genomes_hosts, more phages those of phages_new that
are kept out. Yeast and human have been in the training data of the classifier, but in no profile.
Genes are found in whole records, of nonviral ones in the first 250,000 bases, and are counted in
the piece where they begin. A ratio of host markers is the share of pieces of hosts with so many
functions, divided by that of phages, with one piece of phages more than was found; one of virus
markers is the reverse. Virus markers within 20 kb of each other are one place, and of a provirus
where a hallmark is as near.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from markers import BEGINNING, NOT_VIRAL
from measure import LENGTHS, PROKARYOTIC, together
from profiles import NEAR, kept_out

from virnucpro.io.records import Records
from virnucpro.stages.genes import HOST_MARKERS, VIRUS_MARKERS, GeneFinder, Hit, count_functions
from virnucpro.training.data.dataset import Dataset

SAMPLE = 1_600_000  # bases of each group of hosts
HOSTS, PHAGES, LARGE, OTHERS = "hosts", "phages", "giant and herpesviruses", "other viruses"
# Groups of others that are neither bacteria nor archaea; None are left out.
KINDS = {"plasmids": "plasmids", "organelles": "organelles"} | dict.fromkeys(
    ("transcripts", "plant genes", "mammalian exons", "vertebrates", "plants", "fungal genes")
)
ELEMENTS = ("eukaryotes", "te_", "transposons", "integrons", "ice_", "gene_clusters")


def kind_of_virus(group: str) -> str:
    """Return the row of the table for a group of viruses."""
    if "giant" in group or "herpes" in group:
        return LARGE
    return PHAGES if PROKARYOTIC.search(group) else OTHERS


def sequences(genomes: Path, dataset: Path) -> Iterator[tuple[str, str]]:
    """Yield the kind and the bases of each record."""
    bases: Counter[str] = Counter()
    for record in Dataset(dataset).records("test"):
        if record.label == "virus":
            yield kind_of_virus(record.group), record.sequence
        elif bases[record.group] < SAMPLE and (kind := KINDS.get(record.group, HOSTS)):
            bases[record.group] += min(len(record.sequence), BEGINNING)
            yield kind, record.sequence[:BEGINNING]
    for path in sorted(genomes.glob("genomes_hosts/nonviral/*.fa.gz")):
        if not path.name.startswith(ELEMENTS):
            for number, host in enumerate(Records(path)):
                if number % 2:
                    yield HOSTS, host.sequence[:BEGINNING]
    measured = kept_out(genomes)
    for path in sorted(genomes.glob("phages_new/viral/*")):
        for phage in Records(path):
            if phage.id in measured and phage.id not in NOT_VIRAL:
                yield PHAGES, phage.sequence
    for kind in ("yeast", "human"):
        for chromosome in Records(genomes / f"genomes/nonviral/{kind}.fa.gz"):
            yield kind, chromosome.sequence[:BEGINNING]


# Of hallmarks, host markers and virus markers.
Numbers = tuple[int, int, int]
# Pieces by kind and length: how many have so many functions of each.
Counts = defaultdict[tuple[str, int], Counter[Numbers]]


def share(own: Counter[Numbers], is_meant: Callable[[int, int, int], bool]) -> float:
    """Return the share of pieces with such numbers."""
    return sum(count for numbers, count in own.items() if is_meant(*numbers)) / (own.total() or 1)


def has(number: int, hallmarks: int, markers: int, viral: int) -> bool:
    """Return whether there are so many host markers, 3 standing for 3 and more."""
    return min(markers, 3) == number


def print_shares(counts: Counts) -> None:
    """Print the shares of pieces with one marker and more, and with two and more."""
    print("\n| pieces |", *(f"{length:,} |" for length in LENGTHS))
    print("|---" * (len(LENGTHS) + 1) + "|")
    for kind in dict.fromkeys(kind for kind, _ in counts):
        row = f"| {kind} |"
        for length in LENGTHS:
            own = counts[kind, length]
            one, two = share(own, lambda _, m, __: m >= 1), share(own, lambda _, m, __: m >= 2)
            row += f" {one:.2%} / {two:.2%} of {own.total():,} |"
        print(row)


def print_ratios(counts: Counts) -> None:
    """Print the ratios of hosts to phages for pieces with none, one, two, and more markers."""
    print("\n| length | none | one | two | three or more |\n|---|---|---|---|---|")
    for length in LENGTHS:
        row, phages = f"| {length:,} |", counts[PHAGES, length]
        for number in range(4):
            hosts = share(counts[HOSTS, length], partial(has, number))
            others = share(phages, partial(has, number))
            others += 1 / phages.total() if number else 0  # nearly all phages have none
            row += f" {hosts / others:.3g} |"
        print(row)


def print_rules(counts: Counts) -> None:
    """Print in which pieces there are hallmarks, and in which the markers outweigh them."""
    print("\n| pieces | length | hallmark | only markers | two, over 3 times as many | both |")
    print("|---|---|---|---|---|---|")
    for (kind, length), own in counts.items():
        rules: tuple[Callable[[int, int, int], bool], ...] = (
            lambda h, _, __: h > 0,
            lambda h, m, _: m > h == 0,
            lambda h, m, _: m >= 2 and m > 3 * h,
            lambda h, m, _: m > 0 and h > 0,
        )
        print(f"| {kind} | {length:,} |", *(f"{share(own, rule):.2%} |" for rule in rules))


def print_virus_markers(counts: Counts) -> None:
    """Print the shares of pieces with virus markers, and the ratios of viruses to hosts."""
    heads = "pieces", "length", "number", "hallmark", "hallmark or virus marker"
    more = "one virus marker, no hallmark", "two or more", "ratio of one", "of two or more"
    print("\n|", " | ".join([*heads, *more, "of any beside a hallmark"]), "|")
    print("|---" * 10 + "|")
    rules: tuple[Callable[[int, int, int], bool], ...] = (
        lambda h, _, v: h == 0 and v == 1,
        lambda h, _, v: h == 0 and v >= 2,
        lambda h, _, v: h > 0 and v > 0,
    )
    for (kind, length), own in counts.items():
        row = (
            f"| {kind} | {length:,} | {own.total():,} | {share(own, lambda h, _, __: h > 0):.2%} |"
        )
        row += f" {share(own, lambda h, _, v: h + v > 0):.2%} |"
        row += "".join(f" {share(own, rule):.2%} |" for rule in rules[:2])
        others = counts[HOSTS, length]
        for rule in rules:
            one_more = share(others, rule) + 1 / others.total()
            row += " |" if kind == HOSTS else f" {share(own, rule) / one_more:.1f} |"
        print(row)


def places(hits: Sequence[Hit]) -> tuple[list[set[str]], int]:
    """Return the virus markers at each place without a hallmark, and the number of others."""
    hallmarks = [hit.begin for hit in hits if hit.kind == "hallmark"]
    alone: list[set[str]] = []
    last, proviruses = -NEAR - 1, set()
    for hit in hits:
        if hit.kind == "virus marker":
            near = [begin for begin in hallmarks if abs(begin - hit.begin) <= NEAR]
            if near:
                proviruses.add(near[0])
                continue
            if hit.begin - last > NEAR:
                alone.append(set())
            alone[-1].add(hit.function)
            last = hit.begin
    return alone, len(proviruses)


def main() -> None:
    """Print the tables and the hits in viruses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("genomes", type=Path)
    parser.add_argument("dataset", type=Path)
    arguments = parser.parse_args()
    for path in (HOST_MARKERS, VIRUS_MARKERS):
        print(f"{path.name}: {path.stat().st_size:,} bytes")
    finder, counts, million = GeneFinder(), Counts(Counter), defaultdict[str, float](float)
    found_in, in_viruses, in_hosts = Counter[str](), Counter[str](), Counter[str]()
    at_places, seconds = Counter[int](), 0.0
    records = sequences(arguments.genomes, arguments.dataset)
    for kind, group in groupby(records, key=lambda each: each[0]):
        for some in together(group):
            found = finder.find([text for _, text in some])
            begun = time.process_time()
            finder.find_virus_markers([(genes, [None]) for genes in found])
            seconds += time.process_time() - begun
            for (_, text), genes in zip(some, found, strict=True):
                million[kind] += len(text) / 1e6
                names = [hit.function for hit in genes.hits if hit.kind == "host marker"]
                found_in[kind] += len(names)
                if kind in (PHAGES, LARGE, OTHERS):
                    in_viruses.update(f"{kind}: {name}" for name in names)
                if kind == HOSTS:
                    alone, proviruses = places(genes.hits)
                    at_places.update(min(len(own), 2) for own in alone)
                    at_places[0] += proviruses
                    in_hosts.update(name for own in alone for name in own)
                for length in LENGTHS:
                    pieces: list[list[Hit]] = [[] for _ in range(len(text) // length + 1)]
                    for hit in genes.hits:
                        pieces[hit.begin // length].append(hit)
                    counts[kind, length].update(map(count_functions, pieces[:-1]))
    print_shares(counts)
    print_ratios(counts)
    print_rules(counts)
    print_virus_markers(counts)
    mega = sum(million.values())
    print(f"\n{mega:.1f} Mbp, {seconds / mega:.2f} s of a processor core per Mbp for virus markers")
    print(f"hosts: {at_places[1]} places with one virus marker, {at_places[2]} with more, and")
    print(f"{at_places[0]} hallmarks with one near; of {million[HOSTS]:.1f} Mbp")
    for name, number in in_hosts.most_common(30):
        print(f"  {number} {name}")
    for kind, size in million.items():
        print(f"{kind}: {size:.1f} Mbp, {found_in[kind] / size / 10:.3f} markers per 100,000 bases")
    for name, number in in_viruses.most_common():
        print(f"  {number} {name}")


if __name__ == "__main__":
    main()
