"""Print what the profiles of hallmark genes in the package find in held-out viruses and hosts.

    python examples/hallmarks/measure.py GENOMES DATASET

The arguments are those of profiles.py. Viruses are those of the part test, and the phages of
GENOMES/phages_new that are kept out. Hosts are of the part test, and every second record of
GENOMES/genomes_hosts/nonviral: those that the cutoffs do not know. Genes are found in whole
records, and are counted in the piece where they begin. A ratio is the share of pieces of viruses
with so many functions, divided by that of hosts, with one piece of hosts more than was found. Hits
within 20 kb of each other are one place; a place with more than one name is likely a provirus.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from profiles import NEAR, hosts, kept_out

from virnucpro.io.records import Records
from virnucpro.stages.genes import HALLMARKS, GeneFinder, Predicted
from virnucpro.training.data.dataset import Dataset

LENGTHS = (2000, 5000, 10_000, 20_000, 40_000)
AT_A_TIME = 200  # sequences
HOSTS, NEW = "hosts", "new: "  # NEW is before collections of phages_new
MOST = 40  # pieces of a record, evenly spread
PROKARYOTIC = re.compile("(?<!viro)phage|Microviridae|archaeal|virome")
Counts = defaultdict[tuple[str, int], Counter[int]]  # by collection and length; 2 is 2 or more


def together(items: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Yield some of the items at a time."""
    rest = iter(items)
    while some := list(islice(rest, AT_A_TIME)):
        yield some


def viruses(genomes: Path, dataset: Path) -> Iterator[tuple[str, str]]:
    """Yield the collections and the bases of viruses that no profile knows."""
    for record in Dataset(dataset).records("test"):
        if record.label == "virus":
            yield record.group, record.sequence
    measured = kept_out(genomes)
    for path in sorted(genomes.glob("phages_new/viral/*")):
        for new in Records(path):
            if new.id in measured:
                yield NEW + measured[new.id], new.sequence


def hits(genes: Predicted) -> list[tuple[int, str]]:
    """Return where the hallmark genes of a whole record begin, and their names."""
    return [(hit.begin, hit.function) for hit in genes.hits if hit.kind == "hallmark"]


def places(genes: Predicted) -> list[set[str]]:
    """Return the names of the hallmarks at each place."""
    found: list[set[str]] = []
    last = -NEAR - 1
    for begin, name in hits(genes):
        if begin - last > NEAR:
            found.append(set())
        found[-1].add(name)
        last = begin
    return found


def functions_by_piece(genes: Predicted, bases: int, length: int) -> list[int]:
    """Return how many functions the hallmarks in each piece of a record have."""
    names: list[set[str]] = [set() for _ in range(bases // length + 1)]
    for begin, name in hits(genes):
        names[begin // length].add(name)
    return [len(own) for own in names[:-1]]  # the last piece is shorter


def print_shares(counts: Counts) -> None:
    """Print shares and ratios of each kind."""
    by_kind = Counts(Counter)
    for (collection, length), own in counts.items():
        is_new = collection.startswith(NEW) and "giant" not in collection
        is_phage = is_new or PROKARYOTIC.search(collection)
        kind = "phages" if is_phage else "other viruses"
        by_kind[HOSTS if collection == HOSTS else kind, length] += own
    print("| pieces | length | number | one function | two or more | ratio of one | of two |")
    print("|---|---|---|---|---|---|---|")
    for (kind, length), own in sorted(by_kind.items()):
        row = f"| {kind} | {length:,} | {own.total():,} |"
        shares = [own[number] / own.total() for number in (1, 2)]
        row += "".join(f" {share:.2%} |" for share in shares)
        for number, share in enumerate(shares, 1):
            others = by_kind[HOSTS, length]
            ratio = share / ((others[number] + 1) / others.total())
            row += " |" if kind == HOSTS else f" {ratio:.0f} |"
        print(row)


def print_collections(counts: Counts) -> None:
    """Print the share of pieces with any function, and with two or more, of each collection."""
    print("\n| collection |", *(f"{length:,} |" for length in LENGTHS))
    print("|---" * (len(LENGTHS) + 1) + "|")
    for collection in sorted({collection for collection, _ in counts}):
        row = f"| {collection} |"
        for length in LENGTHS:
            own = counts[collection, length]
            one, two = (100 * number / (own.total() or 1) for number in (own[1] + own[2], own[2]))
            row += f" {one:.0f}/{two:.0f} of {own.total():,} |"
        print(row)


def main() -> None:
    """Print the table and the hits in hosts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("genomes", type=Path)
    parser.add_argument("dataset", type=Path)
    arguments = parser.parse_args()
    finder, counts = GeneFinder(), Counts(Counter)
    print(f"{HALLMARKS.name}: {HALLMARKS.stat().st_size:,} bytes\n")
    bases, alone, proviruses, begun = 0, Counter[str](), 0, time.process_time()
    for some in together(hosts(arguments.genomes, arguments.dataset, held_out=True)):
        bases += sum(len(text) for _, text in some)
        found = finder.find([text for _, text in some])
        for (_, text), genes in zip(some, found, strict=True):
            for own in places(genes):
                proviruses += len(own) > 1
                alone.update(own if len(own) == 1 else ())
            for length in LENGTHS:
                numbers = functions_by_piece(genes, len(text), length)
                counts[HOSTS, length].update(min(number, 2) for number in numbers)
    seconds = time.process_time() - begun
    for some in together(viruses(arguments.genomes, arguments.dataset)):
        found = finder.find([text for _, text in some])
        for (collection, text), genes in zip(some, found, strict=True):
            for length in LENGTHS:
                numbers = functions_by_piece(genes, len(text), length)
                spread = numbers[:: -(-len(numbers) // MOST) or 1]
                counts[collection, length].update(min(number, 2) for number in spread)
    print_shares(counts)
    print_collections(counts)
    million = bases / 1e6
    print(f"\n{million:.1f} Mbp of hosts, {seconds / million:.2f} s of a processor core per Mbp")
    print(f"{alone.total()} places with one name, {alone.total() / million:.2f} per Mbp")
    print(f"{proviruses} places with more, {proviruses / million:.2f} per Mbp")
    for name, count in alone.most_common():
        print(f"  {count} {name}")


if __name__ == "__main__":
    main()
