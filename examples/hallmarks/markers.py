"""Make the profiles of host markers from proteins of bacteria and archaea.

    python examples/hallmarks/markers.py GENOMES DATASET PROFILES

hostmarkers.tsv, beside this script, names the proteins of each profile, and says what they are
called: RECORD|N is the N-th gene that pyrodigal-gv finds in the first 250,000 bases of a record of
GENOMES/*/nonviral. They are of genomes in the part train of DATASET, and of every second record of
GENOMES/genomes_hosts.

Each profile gets the least score that a protein needs (its gathering cutoff): the highest score of
proteins of viruses, but for that of one record, and at least a share of what its own proteins get,
because viruses that nobody has seen have relatives of them, too. The viruses are those of the parts
train and validation, and those of GENOMES that DATASET does not have and that are not kept out. The
collections of predicted viruses that hold many pieces of bacteria do not count.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from profiles import (
    AMINO,
    Profile,
    Protein,
    digital,
    kept_out,
    profile,
    proteins,
    searched,
    write,
)
from pyhmmer.easel import DigitalSequenceBlock

from virnucpro.io.records import Records

MEMBERS = Path(__file__).parent / "hostmarkers.tsv"
BEGINNING = 250_000  # bases of a record that genes are looked for in
COLUMNS = 250  # of a profile; of a longer alignment, the part that is conserved best
LEAST = 28.0  # bits
SHARE = 0.2  # of the median score of its own proteins
# Up to 18 % of the records of each of these files are of bacteria: they hold two markers and more.
PREDICTED = ("gut_infant_phages", "prophages_misc", "viral_contigs_misc", "xanthomonas_prophages")
# Pieces of chromosomes, in genomes/viral/phages_complete.fa.gz and in gut_phages_misc.
NOT_VIRAL = ("k149_22797", "k149_42251", "k149_54590", "gbouras13/Phicore|CP022928.1:1-100000")


def made(genomes: Path) -> Iterator[tuple[Profile, float]]:
    """Yield the profiles, and the median score of the proteins of each."""
    with MEMBERS.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    members = {row["profile"]: row["proteins"].split(",") for row in rows}
    wanted = {protein.rpartition("|")[0] for own in members.values() for protein in own}
    records = {
        record.id: record.sequence[:BEGINNING]
        for path in sorted(genomes.glob("*/nonviral/*.fa.gz"))
        for record in Records(path)
        if record.id in wanted
    }
    texts = {f"{p.record}|{p.number}": p.text for p in proteins(records.items())}

    def one(row: dict[str, str]) -> tuple[Profile, float]:
        own = [texts[protein] for protein in members[row["profile"]]]
        found = profile(row["profile"], row["name"], COLUMNS, own)
        block = DigitalSequenceBlock(AMINO, [digital(str(n), text) for n, text in enumerate(own)])
        scores = [score for score, _ in searched(found.text, block)]
        return found, float(np.median(scores + [0.0] * (len(own) - len(scores))))

    with ThreadPoolExecutor() as pool:
        yield from pool.map(one, rows)


def viruses(genomes: Path, dataset: Path) -> Iterator[tuple[str, str]]:
    """Yield names and sequences of the viruses that cutoffs are from."""
    with (dataset / "genomes.tsv").open(encoding="utf-8", newline="") as stream:
        parts = {row["record"]: row["part"] for row in csv.DictReader(stream, delimiter="\t")}
    left_out = {*kept_out(genomes), *NOT_VIRAL}
    for path in sorted(genomes.glob("*/viral/*.fa.?z")):
        if path.name.partition(".")[0] not in PREDICTED:
            for record in Records(path):
                is_known = parts.get(record.id, "train") in ("train", "validation")
                if is_known and record.id not in left_out:
                    yield record.id, record.sequence


def cutoffs(profiles: Sequence[tuple[Profile, float]], others: Sequence[Protein]) -> list[float]:
    """Return the least score of each profile, from its own median and from proteins of viruses."""
    block = DigitalSequenceBlock(AMINO, [digital(str(n), p.text) for n, p in enumerate(others)])

    def one(found: tuple[Profile, float]) -> float:
        hits = searched(found[0].text, block)  # the best first
        best = {others[number].record: score for score, number in reversed(hits)}
        second = sorted(best.values(), reverse=True)[1:2]
        return max([LEAST, SHARE * found[1], *(score + 1 for score in second)])

    with ThreadPoolExecutor() as pool:
        return list(pool.map(one, profiles))


def main() -> None:
    """Write the profiles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("genomes", type=Path)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("out", type=Path)
    arguments, begun = parser.parse_args(), time.monotonic()
    profiles = list(made(arguments.genomes))
    others = list(proteins(viruses(arguments.genomes, arguments.dataset)))
    write(arguments.out, [found for found, _ in profiles], cutoffs(profiles, others))
    minutes, seconds = (time.monotonic() - begun) / 60, time.process_time()
    print(f"{len(profiles)} profiles, with cutoffs of {len(others):,} proteins of viruses")
    print(f"{minutes:.0f} minutes, {seconds:.0f} s of a processor core\n")


if __name__ == "__main__":
    main()
