"""Print what the profiles of hallmark genes in the package find in held-out viruses and hosts.

    python examples/hallmarks/measure.py GENOMES DATASET

The arguments are those of profiles.py. Viruses of the part test are cut into pieces. Hosts are of
the part test, and every second record of GENOMES/genomes_hosts/nonviral: those that the cutoffs
do not know. Hits within 20 kb of each other are one place; a place with more than one name is
likely a provirus.
"""

from __future__ import annotations

import argparse
import re
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from profiles import NEAR, hosts

from virnucpro.stages.genes import HALLMARKS, GeneFinder, Genes, Searched
from virnucpro.training.data.dataset import Dataset

LENGTHS = (2000, 5000, 10_000, 20_000, 40_000)
AT_A_TIME = 200  # sequences
MOST = 40  # pieces of a record, evenly spread
PROKARYOTIC = re.compile("(?<!viro)phage|Microviridae|archaeal|virome")
HIT = re.compile(r"\tCDS\t(\d+)\t.*product=(.*?);")


def together(items: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Yield some of the items at a time."""
    rest = iter(items)
    while some := list(islice(rest, AT_A_TIME)):
        yield some


def pieces(dataset: Path, length: int) -> Iterator[tuple[str, str]]:
    """Yield the kind and the bases of pieces of held-out viruses."""
    for record in Dataset(dataset).records("test"):
        if record.label == "virus":
            kind = "phages" if PROKARYOTIC.search(record.group) else "other viruses"
            starts = range(0, len(record.sequence) - length + 1, length)
            for start in starts[:: -(-len(starts) // MOST) or 1]:
                yield kind, record.sequence[start : start + length]


def places(genes: Genes) -> list[set[str]]:
    """Return the names of the hallmarks at each place."""
    found: list[set[str]] = []
    last = -NEAR - 1
    for start, name in HIT.findall(zlib.decompress(genes.gff3).decode()):
        if int(start) - last > NEAR:
            found.append(set())
        found[-1].add(name)
        last = int(start)
    return found


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("genomes", type=Path)
    parser.add_argument("dataset", type=Path)
    arguments = parser.parse_args()
    finder = GeneFinder()
    print(f"{HALLMARKS.name}: {HALLMARKS.stat().st_size:,} bytes\n")
    print("| virus | length | pieces | with a hallmark | with two names |\n|---|---|---|---|---|")
    for length in LENGTHS:
        names: dict[str, list[int]] = defaultdict(list)
        for some in together(pieces(arguments.dataset, length)):
            found = finder.find([Searched("", text) for _, text in some])
            for (kind, _), genes in zip(some, found, strict=True):
                names[kind].append(len(set(genes.hallmarks)))
        for kind, counts in names.items():
            shares = [sum(count >= least for count in counts) / len(counts) for least in (1, 2)]
            print(f"| {kind} | {length:,} | {len(counts):,} | {shares[0]:.1%} | {shares[1]:.1%} |")
    bases, alone, proviruses, begun = 0, Counter[str](), 0, time.process_time()
    for some in together(hosts(arguments.genomes, arguments.dataset, held_out=True)):
        bases += sum(len(text) for _, text in some)
        for genes in finder.find([Searched(name, text) for name, text in some]):
            for own in places(genes):
                proviruses += len(own) > 1
                alone.update(own if len(own) == 1 else ())
    seconds = time.process_time() - begun
    million = bases / 1e6
    print(f"\n{million:.1f} Mbp of hosts, {seconds / million:.2f} s of a processor core per Mbp")
    print(f"{alone.total()} places with one name, {alone.total() / million:.2f} per Mbp")
    print(f"{proviruses} places with more, {proviruses / million:.2f} per Mbp")
    for name, count in alone.most_common():
        print(f"  {count} {name}")


if __name__ == "__main__":
    main()
