"""Make the profiles of hallmark genes, or of virus markers, from proteins of viral genomes.

    python examples/hallmarks/profiles.py GENOMES DATASET PROFILES [--hallmarks HALLMARKS]

members.tsv, beside this script, or virusmarkers.tsv where HALLMARKS are given, names the proteins
of each profile, and says what they are called, and how many columns the profile has at most:
RECORD|N is the N-th gene that pyrodigal-gv finds in a record of GENOMES/*/viral. Of these, the
proteins of genomes in the part train of DATASET are used (`virnucpro train prepare` of
examples/lite/train.sh has made it), and of the phages of GENOMES/phages_new those that are not kept
out.

Each profile gets the least score that a protein needs (its gathering cutoff): the highest score of
proteins of hosts. Those near another hallmark do not count, because they may be of a provirus: near
one of the profiles HALLMARKS for virus markers. Nor does the highest of the others count for
hallmarks. The hosts are a sample of the parts train and validation, and every
second record of GENOMES/genomes_hosts/nonviral, which DATASET does not have.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import re
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
import pyfamsa
from pyhmmer.easel import AA, Alphabet, DigitalSequence, DigitalSequenceBlock, TextMSA, TextSequence
from pyhmmer.plan7 import HMM, Background, Builder, HMMFile, Pipeline
from pyrodigal_gv import ViralGeneFinder

from virnucpro.io.records import Records
from virnucpro.training.data.dataset import Dataset, Part

MEMBERS, VIRUS_MARKERS = (
    Path(__file__).parent / name for name in ("members.tsv", "virusmarkers.tsv")
)
LEAST = 25.0  # bits; what is less may be chance
LEAST_OF_MARKER, ABOVE = 30.0, 2.0  # bits; a virus marker needs so many more than any host has
LONG, LEAST_OF_LONG = 700, 40.0  # columns, bits: coiled coils of tape measures have 37 by chance
NEAR = 20_000  # bases; hallmarks of another name so near speak for a provirus
SAMPLE = 1_600_000  # bases of hosts of each group and part
KEPT_OUT = ("acinetobacter_phages", "gut_phages_misc", "marine_archaeal_viruses", "spo1like_phages")
EVERY = 8  # one genus of hosts of so many is kept out of the other files of phages_new
BEFORE_MOTIF = 550  # columns; the palm and fingers of RNA polymerases are before motif C
MOST_RESIDUES = 100_000  # of a protein that HMMER compares
AMINO = Alphabet.amino()


class Protein(NamedTuple):
    """A protein as pyrodigal-gv predicts it."""

    record: str
    number: int  # of the gene in its record, from 1
    begin: int  # in the record
    text: str


class Profile(NamedTuple):
    """A profile as a file of HMMER 3."""

    name: str
    product: str  # what its proteins are called
    text: bytes


def proteins(records: Iterable[tuple[str, str]]) -> Iterator[Protein]:
    """Yield the proteins of records, given as names and sequences."""
    finder = ViralGeneFinder(meta=True)
    listed = list(records)
    with ThreadPoolExecutor() as pool:
        found = pool.map(finder.find_genes, [sequence for _, sequence in listed])
        for (name, _), genes in zip(listed, found, strict=True):
            for number, gene in enumerate(genes, 1):
                yield Protein(name, number, gene.begin, gene.translate(include_stop=False))


def hosts(genomes: Path, dataset: Path, *, held_out: bool) -> Iterator[tuple[str, str]]:
    """Yield names and sequences of a sample of hosts: of those held out, or of the others."""
    parts: Sequence[Part] = ("test",) if held_out else ("train", "validation")
    for part in parts:
        bases: dict[str, int] = defaultdict(int)
        for record in Dataset(dataset).records(part):
            if record.label == "others" and bases[record.group] < SAMPLE:
                bases[record.group] += len(record.sequence)
                yield record.record, record.sequence
    for path in sorted(genomes.glob("genomes_hosts/nonviral/*.fa.gz")):
        for number, other in enumerate(Records(path)):
            if number % 2 == held_out:
                yield other.id, other.sequence


def digital(name: str, text: str) -> DigitalSequence[AA]:
    """Return a protein as HMMER reads it."""
    return TextSequence(name=name, sequence=text[:MOST_RESIDUES]).digitize(AMINO)


def core(rows: list[str], most: int) -> list[str]:
    """Return the part of an alignment that its profile is made from, of ``most`` columns at most.

    It is the part that is conserved best, or, in long parts of polyproteins, the polymerase: the
    columns around the motif C of RNA polymerases, three residues such as GDD, where most rows have
    it. Rows with little of that part are left out.
    """
    letters = np.array([list(row) for row in rows])
    columns = np.flatnonzero((letters != "-").mean(axis=0) >= 0.5)
    if len(columns) <= most:
        return rows
    usual = letters[:, columns]
    shares = np.stack([(usual == letter).mean(axis=0) for letter in AMINO.symbols[:20]])
    known = (shares * np.log2(np.maximum(shares, 1e-9) * 20)).sum(axis=0)
    first, second, third = usual[:, :-2], usual[:, 1:-1], usual[:, 2:]
    is_motif = np.isin(first, ["G", "S"]) & (second == "D") & np.isin(third, ["D", "N"])
    around = np.convolve(known, np.ones(200), "same")
    places = np.flatnonzero(is_motif.mean(axis=0) >= 0.7)
    if len(places) and most > BEFORE_MOTIF:
        start = int(places[around[places].argmax()]) - BEFORE_MOTIF
    else:
        start = int(np.convolve(known, np.ones(most), "valid").argmax())
    start = min(max(start, 0), len(columns) - most)
    part = letters[:, columns[start] : columns[start + most - 1] + 1]
    part = part[(part != "-").mean(axis=1) >= 0.5 * (part != "-").mean()]
    return ["".join(row) for row in part]


def profile(name: str, product: str, most: int, texts: Sequence[str]) -> Profile:
    """Return the profile of proteins, with ``most`` columns at most."""
    given = [pyfamsa.Sequence(str(n).encode(), t.encode()) for n, t in enumerate(texts)]
    rows = core([row.sequence.decode() for row in pyfamsa.Aligner(threads=1).align(given)], most)
    background, builder = Background(AMINO), Builder(AMINO, seed=1)
    if len(rows) == 1:
        hmm, *_ = builder.build(digital(name, rows[0]), background)
    else:
        aligned = [TextSequence(name=str(n), sequence=row) for n, row in enumerate(rows)]
        msa = TextMSA(name=name, sequences=aligned).digitize(AMINO)
        hmm, *_ = builder.build_msa(msa, background)
    hmm.description = product
    return Profile(name, product, shortened(hmm))


def shortened(hmm: HMM[AA]) -> bytes:
    """Return a profile as text, with one decimal, and without time and command."""
    out = io.BytesIO()
    hmm.write(out)
    text = re.sub(rb"^(DATE|COM|CKSUM) .*\n", b"", out.getvalue(), flags=re.MULTILINE)
    head, middle, body = text.partition(b"\nHMM ")
    decimals = re.compile(rb"(?<= )\d+\.\d{5}(?=\s)")
    return head + middle + decimals.sub(lambda number: b"%.1f" % float(number[0]), body)


def searched(text: bytes, block: DigitalSequenceBlock[AA]) -> list[tuple[float, int]]:
    """Return score and number of each protein that looks like a profile, the best first."""
    with HMMFile(io.BytesIO(text), alphabet=AMINO) as file:
        hits = Pipeline(AMINO, T=LEAST).search_hmm(next(iter(file)), block)
    return sorted(((hit.score, int(hit.name)) for hit in hits.reported), reverse=True)


def digitised(others: Sequence[Protein]) -> DigitalSequenceBlock[AA]:
    """Return proteins as they are searched, named by their numbers."""
    return DigitalSequenceBlock(AMINO, [digital(str(n), p.text) for n, p in enumerate(others)])


def found_in(texts: Iterable[bytes], others: Sequence[Protein]) -> list[list[tuple[float, int]]]:
    """Return what :func:`searched` finds with each profile."""
    block = digitised(others)
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda text: searched(text, block), texts))


def is_near(protein: Protein, product: str, places: Mapping[str, list[tuple[int, str]]]) -> bool:
    """Return whether a place of another product is near, in the same record."""
    return any(
        abs(place - protein.begin) <= NEAR and other != product
        for place, other in places[protein.record]
    )


def cutoffs(profiles: Sequence[Profile], others: Sequence[Protein]) -> list[float]:
    """Return the least score of each hallmark, from the proteins of hosts."""
    found = found_in((each.text for each in profiles), others)
    places: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for each, hits in zip(profiles, found, strict=True):
        for _, number in hits:
            places[others[number].record].append((others[number].begin, each.product))
    least = []
    for each, hits in zip(profiles, found, strict=True):
        alone = [score for score, n in hits if not is_near(others[n], each.product, places)]
        columns = int(re.findall(rb"\nLENG +(\d+)", each.text)[0])
        least.append(max([LEAST_OF_LONG if columns >= LONG else LEAST, *alone[1:2]]))
    return least


def marker_cutoffs(
    profiles: Sequence[Profile], others: Sequence[Protein], hallmarks: Path
) -> list[float]:
    """Return the least score of each virus marker, from proteins of hosts far from hallmarks."""
    places: dict[str, list[tuple[int, str]]] = defaultdict(list)
    with gzip.open(hallmarks) as stream, HMMFile(cast(BinaryIO, stream), alphabet=AMINO) as file:
        hmms, block = list(file), digitised(others)
    with ThreadPoolExecutor() as pool:
        pipelines = pool.map(
            lambda hmm: Pipeline(AMINO, bit_cutoffs="gathering").search_hmm(hmm, block), hmms
        )
        for hit in (hit for hits in pipelines for hit in hits.reported):
            protein = others[int(hit.name)]
            places[protein.record].append((protein.begin, "hallmark"))
    found = found_in((each.text for each in profiles), others)
    return [
        max([LEAST_OF_MARKER, *(s + ABOVE for s, n in hits if not is_near(others[n], "", places))])
        for hits in found
    ]


def kept_out(genomes: Path) -> dict[str, str]:
    """Return the records of GENOMES/phages_new that are in no profile, and their files."""
    with gzip.open(genomes / "phages_new/records.tsv.gz", "rt", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    collections = {row["id"]: Path(row["file"]).name.partition(".")[0] for row in rows}
    hashes = {row["id"]: zlib.crc32(row["host_genus"].encode()) for row in rows}  # 0 of no genus
    return {
        record: collection
        for record, collection in collections.items()
        if collection in KEPT_OUT or (hashes[record] and hashes[record] % EVERY == 0)
    }


def made(table: Path, genomes: Path, dataset: Path) -> Iterator[Profile]:
    """Yield the profiles of a table of their proteins."""
    with table.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    members = {row["profile"]: row["proteins"].split(",") for row in rows}
    wanted = {protein.rpartition("|")[0] for own in members.values() for protein in own}
    with (dataset / "genomes.tsv").open(encoding="utf-8", newline="") as stream:
        parts = {row["record"]: row["part"] for row in csv.DictReader(stream, delimiter="\t")}
    measured = kept_out(genomes)
    records: dict[str, str] = {}
    for path in sorted(genomes.glob("*/viral/*.fa.?z")):
        for record in Records(path):
            is_new = path.parts[-3] == "phages_new" and record.id not in measured
            if record.id in wanted and parts.get(record.id, "train" if is_new else "") == "train":
                records.setdefault(record.id, record.sequence)
    texts = {f"{p.record}|{p.number}": p.text for p in proteins(records.items())}
    known = {name: [texts[each] for each in own if each in texts] for name, own in members.items()}
    found = [row for row in rows if known[row["profile"]]]
    with ThreadPoolExecutor() as pool:
        yield from pool.map(
            lambda r: profile(r["profile"], r["name"], int(r["columns"]), known[r["profile"]]),
            found,
        )


def write(path: Path, profiles: Sequence[Profile], least_scores: Sequence[float]) -> None:
    """Write profiles with their cutoffs, without name and time: the same bytes each time."""
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as out:
        for each, least in zip(profiles, least_scores, strict=True):
            cutoff = b"\nGA    %.2f %.2f\nSTATS" % (least, least)
            out.write(each.text.replace(b"\nSTATS", cutoff, 1))


def main() -> None:
    """Write the profiles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("genomes", type=Path)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--hallmarks", type=Path, help="the profiles of hallmark genes")
    arguments, begun = parser.parse_args(), time.monotonic()
    hallmarks: Path | None = arguments.hallmarks
    genomes, dataset = arguments.genomes, arguments.dataset
    profiles = list(made(VIRUS_MARKERS if hallmarks else MEMBERS, genomes, dataset))
    records = list(hosts(genomes, dataset, held_out=False))
    others = list(proteins(records))
    least_scores = (
        marker_cutoffs(profiles, others, hallmarks) if hallmarks else cutoffs(profiles, others)
    )
    write(arguments.out, profiles, least_scores)
    bases = sum(len(sequence) for _, sequence in records)
    minutes, seconds = (time.monotonic() - begun) / 60, time.process_time()
    print(f"{len(profiles)} profiles, with cutoffs of {bases / 1e6:.1f} Mbp of hosts")
    print(f"{minutes:.0f} minutes, {seconds:.0f} s of a processor core\n")


if __name__ == "__main__":
    main()
